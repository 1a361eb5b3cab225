// mean|x - y|. Here a vector holds neighbouring pixels of one image, so nothing has to be rearranged.
#pragma once

#include "compiler.h"
#include "pairwise.h"
#include "pairwise_vectors.h"

namespace neurosql {
namespace NEUROSQL_ISA {
namespace {

constexpr int64_t L1_STEP = 16;           // vectors added to one sum, before that is added to the total
constexpr int64_t L1_CHUNK = 64 * LANES;  // pixels of an image taken at a time
constexpr int64_t L1_COLUMNS = 64;        // generated images whose chunks stay in the cache
constexpr int L1_ROWS = LANES == 16 ? 4 : 2;  // real images against four generated ones, all sums in registers

NEUROSQL_INLINE Vec load_some(const float *from, int64_t count) {
    float part[LANES] = {};
    for (int64_t i = 0; i < count; ++i) part[i] = from[i];
    return load(part);
}

// sums[i][k] = sum|x_i - y_k| over one chunk.
template <int Rows, int Columns>
NEUROSQL_INLINE void l1_chunk(const float *x, const float *y, int64_t pitch, int64_t count, float (*sums)[Columns]) {
    Vec total[Rows][Columns] = {};
    for (int64_t begin = 0; begin < count; begin += L1_STEP * LANES) {
        const int64_t end = smaller(begin + L1_STEP * LANES, count);
        Vec sum[Rows][Columns] = {};
        int64_t p = begin;
        for (; p + LANES <= end; p += LANES) {
            Vec xs[Rows];
            NEUROSQL_UNROLL
            for (int i = 0; i < Rows; ++i) xs[i] = load(x + i * pitch + p);
            NEUROSQL_UNROLL
            for (int k = 0; k < Columns; ++k) {
                const Vec value = load(y + k * pitch + p);
                NEUROSQL_UNROLL
                for (int i = 0; i < Rows; ++i) sum[i][k] += absolute(value - xs[i]);
            }
        }
        NEUROSQL_UNROLL
        for (int i = 0; i < Rows; ++i)
            NEUROSQL_UNROLL
            for (int k = 0; k < Columns; ++k) {
                const float *x_rest = x + i * pitch + p, *y_rest = y + k * pitch + p;
                if (p < end) sum[i][k] += absolute(load_some(y_rest, end - p) - load_some(x_rest, end - p));
                total[i][k] += sum[i][k];
            }
    }
    for (int i = 0; i < Rows; ++i)
        for (int k = 0; k < Columns; ++k) sums[i][k] = sum_of_lanes(total[i][k]);
}

// Costs as sums and what rounding lost of them, row by row.
struct Sums {
    float *sum;
    int64_t pitch;
    float *rest;
    int64_t rest_pitch;

    Sums at(int64_t row, int64_t column) const {
        return {sum + row * pitch + column, pitch, rest + row * rest_pitch + column, rest_pitch};
    }
};

template <int Rows, int Columns>
__attribute__((noinline)) void add_l1(const Pairwise &problem, int64_t row, int64_t column, int64_t begin, Sums out) {
    const float scale = static_cast<float>(problem.l1_weight / static_cast<double>(problem.pixels()));
    const int64_t count = smaller(L1_CHUNK, problem.pixels() - begin);
    float sums[Rows][Columns];
    l1_chunk<Rows, Columns>(problem.x + row * problem.pixels() + begin, problem.y + column * problem.pixels() + begin,
                            problem.pixels(), count, sums);
    for (int i = 0; i < Rows; ++i)
        for (int k = 0; k < Columns; ++k)
            add_exactly(out.sum[i * out.pitch + k], out.rest[i * out.rest_pitch + k], sums[i][k] * scale);
}

Sums sums_of(const Pairwise &problem, const Block &block) {
    return {block.out, problem.m, block.rest, block.columns()};
}

// out += l1_weight mean|x - y|, the share of one chunk, for Rows rows and a range of columns.
template <int Rows>
void l1_rows(const Pairwise &problem, int64_t row, int64_t first_column, int64_t last_column, int64_t begin, Sums out) {
    int64_t k = first_column;
    for (; k + 4 <= last_column; k += 4) add_l1<Rows, 4>(problem, row, k, begin, out.at(0, k - first_column));
    for (; k < last_column; ++k) add_l1<Rows, 1>(problem, row, k, begin, out.at(0, k - first_column));
}

}  // namespace
}  // namespace NEUROSQL_ISA
}  // namespace neurosql
