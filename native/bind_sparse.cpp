// Binds smallest_pairs.h and sparse_auction.h: SmallestPairs and assign_sparse.
#include "smallest_pairs.h"
#include "sparse_auction.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace nb = nanobind;

namespace neurosql {
namespace {

template <class T> using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Scores = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

constexpr int64_t kMostIndices = std::numeric_limits<int32_t>::max();

void require(bool condition, const std::string &message) {
    if (!condition) throw std::invalid_argument(message);
}

template <class T> nb::object to_numpy(std::vector<T> values) {
    auto *kept = new std::vector<T>(std::move(values));
    nb::capsule owner(kept, [](void *p) noexcept { delete static_cast<std::vector<T> *>(p); });
    return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(kept->data(), {kept->size()}, owner));
}

void init_smallest(SmallestPairs *self, int64_t rows, int64_t columns, int64_t k) {
    require(rows >= 0 && columns >= 0 && rows < kMostIndices && columns < kMostIndices,
            "rows and columns must be from 0 to 2^31 - 2, got " + std::to_string(rows) + " and " +
                std::to_string(columns));
    require(k >= 1 && k <= 65536, "k must be from 1 to 65536, got " + std::to_string(k));
    new (self) SmallestPairs(rows, columns, k);
}

void offer(SmallestPairs &self, const Scores &scores, int64_t first_row, int64_t first_column, int threads) {
    const auto height = static_cast<int64_t>(scores.shape(0)), width = static_cast<int64_t>(scores.shape(1));
    require(first_row >= 0 && height <= self.row_count && first_row <= self.row_count - height,
            "a block of " + std::to_string(height) + " rows does not fit at row " + std::to_string(first_row) +
                " of " + std::to_string(self.row_count));
    require(first_column >= 0 && width <= self.column_count && first_column <= self.column_count - width,
            "a block of " + std::to_string(width) + " columns does not fit at column " + std::to_string(first_column) +
                " of " + std::to_string(self.column_count));
    require(threads >= 1, "threads must be at least 1, got " + std::to_string(threads));
    const nb::gil_scoped_release release;
    self.offer(scores.data(), height, width, first_row, first_column, threads);
}

template <class Read> nb::object gather(int64_t lists, int64_t k, Read read) {
    std::vector<int32_t> indices(static_cast<size_t>(lists * k));
    {
        const nb::gil_scoped_release release;
        for (int64_t list = 0; list < lists; ++list) read(list, indices.data() + list * k);
    }
    return to_numpy(std::move(indices));
}

void check_graph(const Vector<int64_t> &indptr, const Vector<int32_t> &indices, const Vector<float> &costs,
                 int64_t columns) {
    require(indptr.shape(0) >= 1, "indptr must have one entry more than there are rows, got none");
    require(indptr.shape(0) <= static_cast<size_t>(kMostIndices), "there must be fewer than 2^31 rows");
    require(columns >= 0 && columns < kMostIndices,
            "columns must be from 0 to 2^31 - 2, got " + std::to_string(columns));
    require(indices.shape(0) == costs.shape(0),
            "indices and costs must have one length, got " + std::to_string(indices.shape(0)) + " and " +
                std::to_string(costs.shape(0)));
    const auto rows = static_cast<int64_t>(indptr.shape(0)) - 1;
    require(indptr.data()[0] == 0, "indptr must begin with 0, got " + std::to_string(indptr.data()[0]));
    for (int64_t i = 0; i < rows; ++i) {
        require(indptr.data()[i] <= indptr.data()[i + 1], "indptr must not fall, got " +
                                                              std::to_string(indptr.data()[i + 1]) + " after " +
                                                              std::to_string(indptr.data()[i]));
    }
    require(indptr.data()[rows] == static_cast<int64_t>(indices.shape(0)),
            "indptr must end with the number of pairs, " + std::to_string(indices.shape(0)) + ", got " +
                std::to_string(indptr.data()[rows]));
    for (size_t pair = 0; pair < indices.shape(0); ++pair) {
        const int32_t column = indices.data()[pair];
        if (column < 0 || column >= columns) {
            throw std::invalid_argument("indices must be in [0, " + std::to_string(columns) + "), got " +
                                        std::to_string(column) + " at " + std::to_string(pair));
        }
        if (!std::isfinite(costs.data()[pair])) {
            throw std::invalid_argument("every cost must be finite, got " + std::to_string(costs.data()[pair]) +
                                        " at " + std::to_string(pair));
        }
    }
}

nb::tuple py_assign_sparse(const Vector<int64_t> &indptr, const Vector<int32_t> &indices, const Vector<float> &costs,
                           int64_t columns, const Vector<double> &epsilons, double outside, int64_t most_bids) {
    check_graph(indptr, indices, costs, columns);
    const auto phases = static_cast<int64_t>(epsilons.shape(0));
    require(phases >= 1, "epsilons must hold at least one value");
    for (int64_t phase = 0; phase < phases; ++phase) {
        const double epsilon = epsilons.data()[phase];
        require(epsilon > 0.0 && std::isfinite(epsilon),
                "epsilons must be positive and finite, got " + std::to_string(epsilon));
    }
    require(std::isfinite(outside), "outside must be finite, got " + std::to_string(outside));
    require(most_bids >= 0, "most_bids must be at least 0, got " + std::to_string(most_bids));
    const Graph graph{indptr.data(), indices.data(), costs.data(), static_cast<int64_t>(indptr.shape(0)) - 1, columns};
    std::optional<SparseAuction> auction;
    std::vector<double> u;
    {
        const nb::gil_scoped_release release;
        auction.emplace(graph, outside, most_bids);
        auction->solve(epsilons.data(), phases);
        u = auction->row_duals();
    }
    nb::dict counted;
    counted["bids"] = auction->counters().bids;
    counted["reverse_bids"] = auction->counters().reverse_bids;
    counted["gave_up"] = auction->counters().gave_up;
    return nb::make_tuple(to_numpy(auction->permutation()), to_numpy(std::move(u)),
                          to_numpy(auction->column_duals()), counted);
}

}  // namespace
}  // namespace neurosql

void bind_sparse(nb::module_ &module) {
    using namespace nb::literals;
    using neurosql::SmallestPairs;
    nb::class_<SmallestPairs>(module, "SmallestPairs",
                              "The k smallest scores of each row and of each column of a matrix seen block by block.")
        .def("__init__", &neurosql::init_smallest, "rows"_a, "columns"_a, "k"_a)
        .def("offer", &neurosql::offer, "scores"_a.noconvert(), "first_row"_a, "first_column"_a, "threads"_a = 1,
             "Look at a block of scores (height, width); blocks come in ascending order along each axis.")
        .def(
            "rows",
            [](SmallestPairs &self) {
                return neurosql::gather(self.row_count, self.k, [&](int64_t i, int32_t *out) { self.row(i, out); });
            },
            "For each row the columns of its k smallest scores, ascending, -1 where there are fewer: (rows * k,).")
        .def(
            "columns",
            [](SmallestPairs &self) {
                return neurosql::gather(self.column_count, self.k,
                                        [&](int64_t j, int32_t *out) { self.column(j, out); });
            },
            "For each column the rows of its k smallest scores, ascending, -1 where there are fewer: (columns * k,).");
    module.def("assign_sparse", &neurosql::py_assign_sparse, "indptr"_a.noconvert(), "indices"_a.noconvert(),
               "costs"_a.noconvert(), "columns"_a, "epsilons"_a.noconvert(), "outside"_a, "most_bids"_a,
               "Assign rows to columns along the pairs of a sparse matrix (indptr, indices, costs), or leave a row out "
               "at the cost `outside`, by one auction per epsilon, in the given order.\n\n"
               "Returns the column of each row (-1 for none), row duals, column duals and counters. The total is at "
               "most rows * epsilons[-1] above the optimum unless the auctions gave up after `most_bids`.");
}
