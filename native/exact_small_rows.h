// The state of the solver for small problems, and its loops over whole rows. exact_small.h runs them.
#pragma once

#include "compiler.h"
#include "cost_matrix.h"

#include <algorithm>
#include <cstdint>

namespace neurosql {

// Rows are padded with infinity to a multiple of this, so that no loop has a remainder. Shorter loops would be unrolled
// by compilers instead of being turned into vectors.
constexpr int64_t kBlock = 32;

inline int64_t padded(int64_t columns) { return (columns + kBlock - 1) / kBlock * kBlock; }

// All that a solve needs, in one piece of memory.
template <class T> struct SmallState {
    const T *cost;
    int64_t rows, width, stride;  // width is the padded number of columns
    double *v, *distance, *open;  // open is v, but -infinity in columns that a search has settled
    T *lowest;
    int32_t *row_of, *column_of, *predecessor, *owner, *free, *settled;
    double *settled_at;
    int64_t free_count, work;  // work counts the rows read

    const T *row(int64_t i) const { return cost + i * stride; }
    double reduced(int64_t i, int64_t j) const { return static_cast<double>(row(i)[j]) - v[j]; }
};

struct Lead {
    double first, second;
    int64_t column;
};

// The first column from `begin` with cost[j] - v[j] == value, or `width`.
template <class T>
NEUROSQL_INLINE int64_t find_reduced(const T *cost, const double *v, int64_t width, double value, int64_t begin = 0) {
    for (int64_t block = begin / kBlock * kBlock; block < width; block += kBlock) {
        int hits = 0;
        for (int64_t lane = 0; lane < kBlock; ++lane) {
            hits |= static_cast<double>(cost[block + lane]) - v[block + lane] == value;
        }
        if (hits == 0) continue;
        for (int64_t j = std::max(block, begin); j < block + kBlock; ++j) {
            if (static_cast<double>(cost[j]) - v[j] == value) return j;
        }
    }
    return width;
}

template <class T> NEUROSQL_INLINE Lead lead_of(const T *cost, const double *v, int64_t width) {
    double first[kBlock], second[kBlock];
    for (int64_t lane = 0; lane < kBlock; ++lane) first[lane] = second[lane] = kInfinity;
    for (int64_t block = 0; block < width; block += kBlock) {
        for (int64_t lane = 0; lane < kBlock; ++lane) {
            const double reduced = static_cast<double>(cost[block + lane]) - v[block + lane];
            const double larger = reduced > first[lane] ? reduced : first[lane];
            second[lane] = larger < second[lane] ? larger : second[lane];
            first[lane] = reduced < first[lane] ? reduced : first[lane];
        }
    }
    for (int64_t half = kBlock / 2; half > 0; half /= 2) {
        for (int64_t lane = 0; lane < half; ++lane) {
            const double a = first[lane], b = first[lane + half];
            const double larger = a > b ? a : b, other = second[lane + half];
            const double less = second[lane] < other ? second[lane] : other;
            first[lane] = a < b ? a : b;
            second[lane] = larger < less ? larger : less;
        }
    }
    return {first[0], second[0], find_reduced(cost, v, width, first[0])};
}

template <class T> NEUROSQL_INLINE double least_reduced(const T *cost, const double *v, int64_t width) {
    double least[kBlock];
    for (int64_t lane = 0; lane < kBlock; ++lane) least[lane] = kInfinity;
    for (int64_t block = 0; block < width; block += kBlock) {
        for (int64_t lane = 0; lane < kBlock; ++lane) {
            const double reduced = static_cast<double>(cost[block + lane]) - v[block + lane];
            least[lane] = reduced < least[lane] ? reduced : least[lane];
        }
    }
    for (int64_t half = kBlock / 2; half > 0; half /= 2) {
        for (int64_t lane = 0; lane < half; ++lane) {
            least[lane] = least[lane + half] < least[lane] ? least[lane + half] : least[lane];
        }
    }
    return least[0];
}

// Relaxes all columns from row i and returns the smallest distance that is not settled.
template <class T> NEUROSQL_INLINE double relax_all(SmallState<T> &s, int64_t i, double base) {
    const T *__restrict row = s.row(i);
    const double *__restrict open = s.open;
    double *__restrict distance = s.distance;
    int32_t *__restrict predecessor = s.predecessor;
    const auto number = static_cast<int32_t>(i);
    double least[kBlock];
    for (int64_t lane = 0; lane < kBlock; ++lane) least[lane] = kInfinity;
    for (int64_t left = s.width; left > 0; left -= kBlock) {
        for (int64_t lane = 0; lane < kBlock; ++lane) {
            const double offered = base + (static_cast<double>(row[lane]) - open[lane]);
            predecessor[lane] = offered < distance[lane] ? number : predecessor[lane];
            distance[lane] = offered < distance[lane] ? offered : distance[lane];
            least[lane] = distance[lane] < least[lane] ? distance[lane] : least[lane];
        }
        row += kBlock;
        open += kBlock;
        distance += kBlock;
        predecessor += kBlock;
    }
    for (int64_t half = kBlock / 2; half > 0; half /= 2) {
        for (int64_t lane = 0; lane < half; ++lane) {
            least[lane] = least[lane + half] < least[lane] ? least[lane + half] : least[lane];
        }
    }
    return least[0];
}

// A column at this distance, a free one if possible.
template <class T> NEUROSQL_INLINE int64_t column_at(const SmallState<T> &s, double value) {
    int64_t found = -1;
    for (int64_t block = 0; block < s.width; block += kBlock) {
        int hits = 0;
        for (int64_t lane = 0; lane < kBlock; ++lane) hits |= s.distance[block + lane] == value;
        if (hits == 0) continue;
        for (int64_t j = block; j < block + kBlock; ++j) {
            if (s.distance[j] != value) continue;
            if (s.row_of[j] < 0) return j;
            found = j;
        }
    }
    return found;
}

}  // namespace neurosql
