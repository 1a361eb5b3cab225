// Binds exact.h, exact_small.h and greedy.h: assign, mean_cost, greedy and row_order, for float32 and float64 costs.
#include "cost_matrix.h"
#include "exact.h"
#include "greedy.h"
#include "exact_small.h"
#include "row_loops.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace nb = nanobind;

namespace neurosql {
namespace {

template <class T> using Matrix = nb::ndarray<const T, nb::ndim<2>, nb::device::cpu>;
using Reals = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Integers = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T> CostMatrix<T> checked(const Matrix<T> &cost) {
    const auto n = static_cast<int64_t>(cost.shape(0)), m = static_cast<int64_t>(cost.shape(1));
    if (m < n) {
        throw std::invalid_argument("cost must have at least as many columns as rows, got " + std::to_string(n) +
                                    " rows and " + std::to_string(m) + " columns");
    }
    if (m > std::numeric_limits<int32_t>::max()) {
        throw std::invalid_argument("cost must have fewer than 2^31 columns, got " + std::to_string(m));
    }
    if (m > 1 && n > 0 && cost.stride(1) != 1) {
        throw std::invalid_argument("the entries of a row of cost must be contiguous: use numpy.ascontiguousarray");
    }
    return {cost.data(), n, m, cost.stride(0)};
}

template <class Array> void check_length(const Array &array, int64_t length, const char *name) {
    if (static_cast<int64_t>(array.shape(0)) == length) return;
    throw std::invalid_argument(std::string(name) + " must have length " + std::to_string(length) + ", got " +
                                std::to_string(array.shape(0)));
}

void check_order(const Integers &order, int64_t rows) {
    check_length(order, rows, "order");
    std::vector<char> seen(rows, 0);
    for (int64_t k = 0; k < rows; ++k) {
        const int64_t i = order.data()[k];
        if (i < 0 || i >= rows || seen[i]) {
            throw std::invalid_argument("order must hold each row once, got " + std::to_string(i) + " at " +
                                        std::to_string(k));
        }
        seen[i] = 1;
    }
}

template <class T> nb::object to_numpy(std::vector<T> values) {
    auto *kept = new std::vector<T>(std::move(values));
    nb::capsule owner(kept, [](void *p) noexcept { delete static_cast<std::vector<T> *>(p); });
    return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(kept->data(), {kept->size()}, owner));
}

template <class T>
nb::tuple py_assign(const Matrix<T> &cost, std::optional<Reals> column_duals, std::optional<Integers> permutation,
                    double tolerance, int threads) {
    const CostMatrix<T> matrix = checked<T>(cost);
    if (column_duals) check_length(*column_duals, matrix.columns, "column_duals");
    if (permutation) check_length(*permutation, matrix.rows, "permutation");
    if (!(tolerance >= 0.0)) throw std::invalid_argument("tolerance must be at least 0");
    const WarmStart warm{column_duals ? column_duals->data() : nullptr, permutation ? permutation->data() : nullptr};
    std::vector<int64_t> columns;
    std::vector<double> u, v;
    Counters counters;
    bool exact = true;
    {
        nb::gil_scoped_release release;
        Outcome outcome = Outcome::unfinished;
        if (!column_duals && !permutation && matrix.rows > 0 && matrix.columns <= kSmall) {
            columns.resize(matrix.rows);
            u.resize(matrix.rows);
            v.resize(matrix.columns);
            outcome = small_assignment(matrix, columns.data(), u.data(), v.data());
        }
        if (outcome != Outcome::solved) {
            Solver<T> solver(matrix, tolerance, threads);
            solver.solve(warm);
            columns = solver.permutation();
            u = solver.u();
            v = solver.v();
            exact = solver.exact();
            counters = solver.counters();
        }
    }
    nb::dict counted;
    counted["kept"] = counters.kept;
    counted["bids"] = counters.bids;
    counted["paths"] = counters.paths;
    counted["path_steps"] = counters.path_steps;
    counted["row_reads"] = counters.row_reads;
    return nb::make_tuple(to_numpy(std::move(columns)), to_numpy(std::move(u)), to_numpy(std::move(v)), exact, counted);
}

template <class T> nb::tuple py_greedy(const Matrix<T> &cost, std::optional<Integers> order) {
    const CostMatrix<T> matrix = checked<T>(cost);
    if (order) check_order(*order, matrix.rows);
    Greedy<T> greedy(matrix);
    {
        nb::gil_scoped_release release;
        greedy.solve(order ? order->data() : nullptr);
    }
    return nb::make_tuple(to_numpy(greedy.columns_of()), to_numpy(greedy.u()), to_numpy(greedy.v()));
}

template <class T> nb::object py_row_order(const Matrix<T> &cost, const std::string &kind) {
    const CostMatrix<T> matrix = checked<T>(cost);
    if (kind != "cheapest" && kind != "regret") {
        throw std::invalid_argument("kind must be cheapest or regret, got " + kind);
    }
    std::vector<int64_t> order(matrix.rows);
    std::iota(order.begin(), order.end(), 0);
    if (matrix.rows > 0 && matrix.columns > 1) {
        nb::gil_scoped_release release;
        std::vector<double> key(matrix.rows), zero(matrix.columns, 0.0), minima(group_count(matrix.columns));
        for (int64_t i = 0; i < matrix.rows; ++i) {
            group_minima(matrix.row(i), zero.data(), matrix.columns, minima.data());
            const TwoSmallest best = two_smallest(matrix.row(i), zero.data(), matrix.columns, minima.data());
            key[i] = kind == "cheapest" ? best.first : best.first - best.second;
            // A row of NaN and infinity has no regret; NaN would not sort.
            if (std::isnan(key[i])) key[i] = 0.0;
        }
        std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return key[a] < key[b]; });
    }
    return to_numpy(std::move(order));
}

template <class T> double py_mean_cost(const Matrix<T> &cost, const Integers &permutation) {
    const CostMatrix<T> matrix = checked<T>(cost);
    check_length(permutation, matrix.rows, "permutation");
    double sum = 0.0, lost = 0.0;
    for (int64_t i = 0; i < matrix.rows; ++i) {
        const int64_t j = permutation.data()[i];
        if (j < 0 || j >= matrix.columns) {
            throw std::invalid_argument("permutation must hold columns, got " + std::to_string(j) + " at " +
                                        std::to_string(i));
        }
        // `lost` adds up what rounding takes from the sum.
        const double value = matrix.at(i, j), next = sum + value;
        lost += std::abs(sum) >= std::abs(value) ? (sum - next) + value : (value - next) + sum;
        sum = next;
    }
    return matrix.rows > 0 ? (sum + lost) / static_cast<double>(matrix.rows) : 0.0;
}

constexpr char kMeanCostDoc[] = "The mean cost 1/n sum_i C[i, permutation[i]] in float64; 0 if there are no rows.";

constexpr char kAssignDoc[] =
    "Assign each row of cost (n, m), n <= m, to a column of its own at the least total cost.\n\n"
    "Returns (permutation, u, v, exact, counters), with u_i = min_j (C_ij - v_j) and v <= 0; where n < m, v_j = 0 for\n"
    "columns without a row. column_duals (v) and permutation of an earlier, similar problem save time; whatever their\n"
    "values, the cost of the result is the same. (Where n < m, column_duals is not used.) The result is not exact\n"
    "only where costs are alike up to about tolerance, relative to their size; the mean gap is then at most about\n"
    "tolerance times the mean cost. Raises ValueError if a cost is not finite or beyond 1e300.";

constexpr char kGreedyDoc[] =
    "Give each row in the given order (None: first to last) its cheapest free column, the lowest of equals.\n\n"
    "Returns (permutation, u, v). The duals are feasible and come from row minima, then column minima. Raises\n"
    "ValueError if a cost is not finite.";

constexpr char kRowOrderDoc[] =
    "Rows in ascending order of their smallest cost (kind cheapest), or in descending order of the difference between\n"
    "their two smallest costs (kind regret); the lower row first among equals.";

template <class T> void bind_for(nb::module_ &module) {
    using namespace nb::literals;
    module.def("assign", &py_assign<T>, "cost"_a.noconvert(), "column_duals"_a = nb::none(),
               "permutation"_a = nb::none(), "tolerance"_a = 1e-7, "threads"_a = 1, kAssignDoc);
    module.def("mean_cost", &py_mean_cost<T>, "cost"_a.noconvert(), "permutation"_a, kMeanCostDoc);
    module.def("greedy", &py_greedy<T>, "cost"_a.noconvert(), "order"_a = nb::none(), kGreedyDoc);
    module.def("row_order", &py_row_order<T>, "cost"_a.noconvert(), "kind"_a, kRowOrderDoc);
}

}  // namespace
}  // namespace neurosql

void bind_assignment(nb::module_ &module) {
    neurosql::bind_for<float>(module);
    neurosql::bind_for<double>(module);
}
