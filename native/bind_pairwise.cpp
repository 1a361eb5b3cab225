// Binds pairwise and pairwise_pairs: checks the arguments, chooses the instruction set, shares the work among threads.
#include "pairwise.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <new>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "parallel.h"

namespace nb = nanobind;

namespace neurosql {
namespace {

using Images = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using Window = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Indices = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Matrix = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Costs = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// If positions times pairs is below this, starting threads costs more than it saves.
constexpr double WORTH_THREADS = 2e6;

// Many parts per thread, so that no thread waits long for the last part.
constexpr int64_t PARTS_PER_THREAD = 10;

// A block has at most this many columns, because it keeps one more float per entry.
constexpr int64_t MOST_COLUMNS = 2048;

// The kernels that are compiled in and that this processor supports, the simplest first.
std::vector<const Kernel *> supported_kernels() {
    std::vector<const Kernel *> kernels{&baseline::kernel};
#ifdef NEUROSQL_HAS_avx2
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) kernels.push_back(&avx2::kernel);
#endif
#ifdef NEUROSQL_HAS_avx512
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        kernels.push_back(&avx512::kernel);
#endif
    return kernels;
}

// The last supported kernel, or the one that the environment variable NEUROSQL_ISA names; looked up at each call.
const Kernel &chosen_kernel() {
    const auto kernels = supported_kernels();
    const char *wanted = std::getenv("NEUROSQL_ISA");
    if (wanted == nullptr || *wanted == 0) return *kernels.back();
    std::string names;
    for (const Kernel *kernel : kernels) {
        if (std::string(wanted) == kernel->name) return *kernel;
        names += (names.empty() ? "" : ", ") + std::string(kernel->name);
    }
    throw nb::value_error(("NEUROSQL_ISA must be one of " + names + ", got '" + wanted + "'").c_str());
}

void require(bool condition, const std::string &message) {
    if (!condition) throw nb::value_error(message.c_str());
}

std::string shape_of(const Images &images) {
    std::string text = "(";
    for (size_t axis = 0; axis < images.ndim(); ++axis)
        text += (axis ? ", " : "") + std::to_string(images.shape(axis));
    return text + ")";
}

void set_window(Pairwise &problem, const Window &taps) {
    const auto size = static_cast<int>(std::min<size_t>(taps.shape(0), MAX_WINDOW + 1));
    require(size % 2 == 1 && size <= MAX_WINDOW,
            "taps must be an odd number of at most 11, got " + std::to_string(taps.shape(0)));
    double total = 0;
    for (int k = 0; k < size; ++k) {
        problem.taps[k] = taps.data()[k];
        total += problem.taps[k];
        require(taps.data()[k] == taps.data()[size - 1 - k], "taps must be symmetric");
    }
    require(std::abs(total - 1) < 1e-3, "taps must have the sum 1, got " + std::to_string(total));
    // The sum of the taps rounded to float is not quite 1, which would show in flat areas. The outermost taps make up
    // the difference: they are the smallest and so have the finest rounding.
    double rest = 1;
    for (int k = 0; k < size; ++k) rest -= problem.taps[k] = static_cast<float>(problem.taps[k] / total);
    problem.taps[0] = problem.taps[size - 1] = static_cast<float>(problem.taps[0] + (size > 1 ? rest / 2 : rest));
}

Axis axis_of(int64_t length, int window, int64_t stride) {
    require(length >= window, "each spatial axis must have at least the window's " + std::to_string(window) +
                                  " pixels, got " + std::to_string(length));
    return {length, window, stride, (length - window) / stride + 1};
}

Pairwise make_problem(const Images &x, const Images &y, const Window &taps, double a, double b, int64_t stride) {
    require(x.ndim() >= 3 && x.ndim() <= 5,
            "images must be (n, channels, *spatial) with 1 to 3 spatial axes, got " + shape_of(x));
    require(y.ndim() == x.ndim(), "images must have one shape, got " + shape_of(x) + " and " + shape_of(y));
    for (size_t axis = 1; axis < x.ndim(); ++axis)
        require(x.shape(axis) == y.shape(axis),
                "images must have one shape, got " + shape_of(x) + " and " + shape_of(y));
    require(x.shape(1) > 0, "images must have a channel, got " + shape_of(x));
    require(stride >= 1, "stride must be at least 1, got " + std::to_string(stride));
    require(std::isfinite(a) && std::isfinite(b), "a and b must be finite");

    Pairwise problem{};
    problem.x = x.data();
    problem.y = y.data();
    problem.n = static_cast<int64_t>(x.shape(0));
    problem.m = static_cast<int64_t>(y.shape(0));
    problem.channels = static_cast<int64_t>(x.shape(1));
    set_window(problem, taps);
    const auto window = static_cast<int>(taps.shape(0));
    Axis *axes[] = {&problem.width, &problem.height, &problem.depth};
    for (size_t axis = 0; axis + 2 < x.ndim(); ++axis)
        *axes[axis] = axis_of(static_cast<int64_t>(x.shape(x.ndim() - 1 - axis)), window, stride);
    problem.ssim_weight = a;
    problem.l1_weight = b;
    return problem;
}

int useful_threads(const Pairwise &problem, double pairs, int threads) {
    require(threads >= 1, "threads must be at least 1, got " + std::to_string(threads));
    return pairs * static_cast<double>(problem.positions()) < WORTH_THREADS ? 1 : threads;
}

// Memory at a 64-byte boundary, for one worker.
class Scratch {
  public:
    explicit Scratch(int64_t bytes) : memory_(new (std::nothrow) char[static_cast<size_t>(bytes) + 63]) {}
    void *get() const {
        const auto address = reinterpret_cast<uintptr_t>(memory_.get());
        return address == 0 ? nullptr : reinterpret_cast<void *>((address + 63) & ~uintptr_t{63});
    }

  private:
    std::unique_ptr<char[]> memory_;
};

// Threads, each with scratch memory. No exception may leave a thread, so the memory is allocated before they start.
class Workers {
  public:
    Workers(int threads, int64_t bytes) : threads_(threads) {
        for (int i = 0; i < threads; ++i) {
            scratch_.emplace_back(bytes);
            if (scratch_.back().get() == nullptr) throw std::bad_alloc();
        }
    }
    // Calls body(part, scratch) for each part.
    template <class Body> void run(int64_t parts, Body body) const {
        parallel_parts(parts, threads_, [&](int64_t part, int worker) {
            body(part, scratch_[static_cast<size_t>(worker)].get());
        });
    }

  private:
    int threads_;
    std::vector<Scratch> scratch_;
};

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// One block. For each tile the threads share the making of the real images' records, then the columns to compare them
// with. Each image is prepared once, unless there are too few columns for the threads.
void run_block(const Kernel &kernel, const Pairwise &problem, const Block &block, float *records, int threads,
               const Workers &workers) {
    constexpr int64_t ROWS_PER_PART = 32;
    const int64_t row_parts = divide_up(block.rows(), ROWS_PER_PART);
    const auto rows_of = [&](int64_t part, int64_t size) {
        const int64_t first = block.first_row + part * size;
        return std::pair(first, std::min(first + size, block.last_row));
    };
    workers.run(row_parts, [&](int64_t part, void *) {
        const auto [first, last] = rows_of(part, ROWS_PER_PART);
        kernel.block_l1(problem, block, first, last);
    });
    const int64_t groups = divide_up(block.columns(), kernel.lanes);
    const int64_t splits = threads == 1 ? 1 : std::min(divide_up(PARTS_PER_THREAD * threads, groups), row_parts);
    const int64_t split_rows = divide_up(block.rows(), splits);
    for (int64_t tile = 0; problem.ssim_weight != 0 && tile < kernel.tiles(problem); ++tile) {
        workers.run(row_parts, [&](int64_t part, void *scratch) {
            const auto [first, last] = rows_of(part, ROWS_PER_PART);
            kernel.x_records(problem, tile, block.first_row, first, last, records, scratch);
        });
        workers.run(groups * splits, [&](int64_t part, void *scratch) {
            const auto [first, last] = rows_of(part % splits, split_rows);
            const int64_t column = block.first_column + part / splits * kernel.lanes;
            kernel.block_tile(problem, block, tile, records, first, last, column,
                              std::min(column + kernel.lanes, block.last_column), scratch);
        });
    }
    for (int64_t i = 0; i < block.rows(); ++i)
        for (int64_t k = 0; k < block.columns(); ++k)
            block.out[i * problem.m + k] += block.rest[i * block.columns() + k];
}

void run_matrix(const Kernel &kernel, const Pairwise &problem, float *out, int threads) {
    const int64_t rows = std::min(kernel.block_rows(problem), problem.n), columns = std::min(MOST_COLUMNS, problem.m);
    const Workers workers(threads, kernel.scratch(problem));
    const std::unique_ptr<float[]> rest(new float[static_cast<size_t>(rows * columns)]);
    const std::unique_ptr<float[]> records(new float[static_cast<size_t>(rows * kernel.x_record(problem))]);
    for (int64_t i = 0; i < problem.n; i += rows)
        for (int64_t k = 0; k < problem.m; k += columns) {
            const Block block{i, std::min(i + rows, problem.n), k, std::min(k + columns, problem.m),
                              out + i * problem.m + k, rest.get()};
            run_block(kernel, problem, block, records.get(), threads, workers);
        }
}

// The pairs in the order of their rows, so that neighbours share a real image.
std::vector<int64_t> by_row(const int64_t *rows, int64_t count) {
    std::vector<int64_t> order(static_cast<size_t>(count));
    std::iota(order.begin(), order.end(), int64_t{0});
    if (!std::is_sorted(rows, rows + count))
        std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return rows[a] < rows[b]; });
    return order;
}

void run_pairs(const Kernel &kernel, const Pairwise &problem, const int64_t *rows, const int64_t *columns,
               int64_t count, float *out, int threads) {
    constexpr int64_t GROUPS_PER_PART = 8, IMAGES_PER_PART = 64;
    const auto order = by_row(rows, count);
    const int64_t some = GROUPS_PER_PART * kernel.lanes;
    const Workers workers(threads, kernel.scratch(problem));
    const int64_t pair_parts = divide_up(count, some);
    const std::unique_ptr<float[]> rest(new float[static_cast<size_t>(count)]);
    workers.run(pair_parts, [&](int64_t part, void *) {
        kernel.pairs_l1(problem, rows, columns, order.data(), part * some, std::min((part + 1) * some, count), out,
                        rest.get());
    });
    if (problem.ssim_weight == 0) return;
    const std::unique_ptr<float[]> x(new float[static_cast<size_t>(problem.n * kernel.x_record(problem))]);
    const std::unique_ptr<float[]> y(new float[static_cast<size_t>(problem.m * kernel.y_record(problem))]);
    const int64_t x_parts = divide_up(problem.n, IMAGES_PER_PART), y_parts = divide_up(problem.m, IMAGES_PER_PART);
    for (int64_t tile = 0; tile < kernel.tiles(problem); ++tile) {
        workers.run(x_parts + y_parts, [&](int64_t part, void *scratch) {
            if (part < x_parts) {
                const int64_t first = part * IMAGES_PER_PART;
                kernel.x_records(problem, tile, 0, first, std::min(first + IMAGES_PER_PART, problem.n), x.get(),
                                 scratch);
            } else {
                const int64_t first = (part - x_parts) * IMAGES_PER_PART;
                kernel.y_records(problem, tile, first, std::min(first + IMAGES_PER_PART, problem.m), y.get(), scratch);
            }
        });
        workers.run(pair_parts, [&](int64_t part, void *scratch) {
            kernel.pairs_tile(problem, tile, x.get(), y.get(), rows, columns, order.data(), part * some,
                              std::min((part + 1) * some, count), out, rest.get(), scratch);
        });
    }
    for (int64_t p = 0; p < count; ++p) out[p] += rest[static_cast<size_t>(p)];
}

void pairwise(const Images &x, const Images &y, const Window &taps, double a, double b, const Matrix &out,
              int64_t stride, int threads) {
    const Pairwise problem = make_problem(x, y, taps, a, b, stride);
    require(out.shape(0) == x.shape(0) && out.shape(1) == y.shape(0),
            "out must be (" + std::to_string(problem.n) + ", " + std::to_string(problem.m) + "), got (" +
                std::to_string(out.shape(0)) + ", " + std::to_string(out.shape(1)) + ")");
    const Kernel &kernel = chosen_kernel();
    threads = useful_threads(problem, static_cast<double>(problem.n) * static_cast<double>(problem.m), threads);
    if (problem.n == 0 || problem.m == 0) return;
    const nb::gil_scoped_release release;
    run_matrix(kernel, problem, out.data(), threads);
}

void require_indices(const Indices &indices, int64_t end, const char *name) {
    for (size_t p = 0; p < indices.shape(0); ++p) {
        const int64_t index = indices.data()[p];
        require(index >= 0 && index < end, std::string(name) + " must be in [0, " + std::to_string(end) + "), got " +
                                               std::to_string(index) + " at " + std::to_string(p));
    }
}

void pairwise_pairs(const Images &x, const Images &y, const Indices &rows, const Indices &columns, const Window &taps,
                    double a, double b, const Costs &out, int threads) {
    const Pairwise problem = make_problem(x, y, taps, a, b, 1);
    const size_t count = rows.shape(0);
    require(columns.shape(0) == count && out.shape(0) == count,
            "rows, columns and out must have one length, got " + std::to_string(count) + ", " +
                std::to_string(columns.shape(0)) + " and " + std::to_string(out.shape(0)));
    require_indices(rows, problem.n, "rows");
    require_indices(columns, problem.m, "columns");
    const Kernel &kernel = chosen_kernel();
    threads = useful_threads(problem, static_cast<double>(count), threads);
    if (count == 0) return;
    const nb::gil_scoped_release release;
    run_pairs(kernel, problem, rows.data(), columns.data(), static_cast<int64_t>(count), out.data(), threads);
}

nb::list instruction_sets() {
    nb::list names;
    for (const Kernel *kernel : supported_kernels()) names.append(kernel->name);
    return names;
}

}  // namespace
}  // namespace neurosql

void bind_pairwise(nb::module_ &module) {
    using namespace nb::literals;
    module.def("pairwise", &neurosql::pairwise, "x"_a.noconvert(), "y"_a.noconvert(), "taps"_a.noconvert(), "a"_a,
               "b"_a, "out"_a.noconvert(), "stride"_a = 1, "threads"_a = 1,
               "out[i, k] = a (1 - SSIM(x_i, y_k)) + b mean|x_i - y_k| for x (n, c, *spatial), y (m, c, *spatial).\n\n"
               "SSIM uses the window `taps` along each spatial axis, at positions 0, stride, 2 stride, ... that lie "
               "inside the image.");
    module.def("pairwise_pairs", &neurosql::pairwise_pairs, "x"_a.noconvert(), "y"_a.noconvert(),
               "rows"_a.noconvert(), "columns"_a.noconvert(), "taps"_a.noconvert(), "a"_a, "b"_a, "out"_a.noconvert(),
               "threads"_a = 1, "out[p] = the entry of `pairwise` at (rows[p], columns[p]).");
    module.def(
        "instruction_set", [] { return neurosql::chosen_kernel().name; },
        "The instruction set in use: the best supported one, or the one that NEUROSQL_ISA names at each call.");
    module.def("instruction_sets", &neurosql::instruction_sets, "The instruction sets compiled in and supported here.");
}
