// The greedy assignment: each row in turn takes its cheapest free column, the lowest column among equals. The duals
// come from minima, rows first:
//
//   u_i = min_j C_ij,  v_j = min_i (C_ij - u_i),  then a constant moves from v to u so that v <= 0.
//
// In a square problem v = 0 wherever a row has its minimum, so v does not lower u again: one pass gives all. With
// columns to spare, v is zero.
#pragma once

#include "compiler.h"
#include "cost_matrix.h"
#include "row_loops.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

namespace neurosql {

// What the greedy solver needs to know of a row, found in one pass: the smallest cost, the smallest cost among free
// columns (`taken` is 0 for these and infinity for others), and whether all costs are finite.
template <class T> struct RowScan {
    T least, least_free;
    bool finite;
};

// `next` is the row that will be scanned after this one: asking for it here is faster than waiting for the processor's
// own prefetching.
template <class T>
NEUROSQL_INLINE RowScan<T> scan_row_loop(const T *cost, const T *taken, int64_t columns, const T *next) {
    T least[kLanes], least_free[kLanes], suspect[kLanes];
    for (int64_t lane = 0; lane < kLanes; ++lane) {
        least[lane] = least_free[lane] = std::numeric_limits<T>::infinity();
        suspect[lane] = 0;
    }
    auto look = [&](int64_t begin, int64_t width) {
        for (int64_t lane = 0; lane < width; ++lane) {
            const T c = cost[begin + lane], free = c + taken[begin + lane];
            least[lane] = c < least[lane] ? c : least[lane];
            least_free[lane] = free < least_free[lane] ? free : least_free[lane];
            suspect[lane] += suspicion(c);
        }
    };
    if (columns < kLanes) {
        look(0, columns);
    } else {
        for (int64_t begin = 0; begin + kLanes <= columns; begin += kLanes) {
            prefetch(next + begin);
            look(begin, kLanes);
        }
        look(columns - kLanes, kLanes);  // the remaining columns, and some of the others a second time
    }
    for (int64_t half = kLanes / 2; half > 0; half /= 2) {
        for (int64_t lane = 0; lane < half; ++lane) {
            least[lane] = least[lane + half] < least[lane] ? least[lane + half] : least[lane];
            least_free[lane] = least_free[lane + half] < least_free[lane] ? least_free[lane + half] : least_free[lane];
            suspect[lane] += suspect[lane + half];
        }
    }
    return {least[0], least_free[0], suspect[0] == 0};
}

NEUROSQL_EACH_ISA static RowScan<float> scan_row(const float *cost, const float *taken, int64_t columns,
    const float *next) {
    return scan_row_loop(cost, taken, columns, next);
}

NEUROSQL_EACH_ISA static RowScan<double> scan_row(const double *cost, const double *taken, int64_t columns,
    const double *next) {
    return scan_row_loop(cost, taken, columns, next);
}

// The first column with cost[j] + taken[j] == value, or `columns`.
template <class T> NEUROSQL_INLINE int64_t find_free_loop(const T *cost, const T *taken, int64_t columns, T value) {
    int64_t begin = 0;
    for (; begin + 4 * kLanes <= columns; begin += 4 * kLanes) {
        int hits = 0;
        for (int64_t lane = 0; lane < 4 * kLanes; ++lane) hits |= cost[begin + lane] + taken[begin + lane] == value;
        if (hits != 0) break;
    }
    while (begin < columns && cost[begin] + taken[begin] != value) ++begin;
    return begin;
}

NEUROSQL_EACH_ISA static int64_t find_free(const float *cost, const float *taken, int64_t columns, float value) {
    return find_free_loop(cost, taken, columns, value);
}

NEUROSQL_EACH_ISA static int64_t find_free(const double *cost, const double *taken, int64_t columns, double value) {
    return find_free_loop(cost, taken, columns, value);
}

template <class T> class Greedy {
  public:
    explicit Greedy(const CostMatrix<T> &cost)
        : cost_(cost), columns_(cost.rows), u_(cost.rows), v_(cost.columns, 0.0) {}

    // A null `order` stands for 0, 1, 2, ...
    void solve(const int64_t *order) {
        const int64_t n = cost_.rows, m = cost_.columns;
        const bool square = n == m;
        if (square) std::fill(v_.begin(), v_.end(), kInfinity);
        std::vector<T> taken(m, T(0));
        auto row = [&](int64_t k) { return order == nullptr ? k : order[k]; };
        for (int64_t k = 0; k < n; ++k) {
            const int64_t i = row(k);
            const RowScan<T> scan = scan_row(cost_.row(i), taken.data(), m, cost_.row(row(std::min(k + 1, n - 1))));
            if (!scan.finite) throw std::invalid_argument("cost must be finite");
            columns_[i] = find_free(cost_.row(i), taken.data(), m, scan.least_free);
            taken[columns_[i]] = std::numeric_limits<T>::infinity();
            u_[i] = static_cast<double>(scan.least);
            if (!square || (k % 2 == 0 && k + 1 < n)) continue;
            const int64_t before = row(k - k % 2);
            lower(cost_.row(before), u_[before], cost_.row(i), u_[i], m, v_.data());
        }
        if (square && n > 0) shift();
    }

    std::vector<int64_t> columns_of() { return std::move(columns_); }
    std::vector<double> u() { return std::move(u_); }
    std::vector<double> v() { return std::move(v_); }

  private:
    // Moves a constant from v to u. Where that makes u smaller in size, the rounding error it had before may be too
    // large for it, and u is found from the row instead.
    void shift() {
        const double highest = *std::max_element(v_.begin(), v_.end());
        if (!(highest > 0.0)) return;
        for (double &v : v_) v -= highest;
        std::vector<double> minima(group_count(cost_.columns));
        for (int64_t i = 0; i < cost_.rows; ++i) {
            if (u_[i] >= 0.0) {
                u_[i] += highest;
            } else {
                group_minima(cost_.row(i), v_.data(), cost_.columns, minima.data());
                u_[i] = smallest(minima.data(), static_cast<int64_t>(minima.size()));
            }
        }
    }

    const CostMatrix<T> cost_;
    std::vector<int64_t> columns_;
    std::vector<double> u_, v_;
};

}  // namespace neurosql
