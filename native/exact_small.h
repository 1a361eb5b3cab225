// The linear assignment problem for few rows, solved exactly by Jonker and Volgenant's method on whole rows.
//
// The lists and auctions of exact.h pay from a few hundred rows on. Below that, rows are so short that reading them
// again is cheaper than avoiding it. The duals obey the same rules:
//
//   1. column reduction: v is the column minima, and each column goes to the row that has its minimum, if that row is
//      free; reduction transfer: rows with one column lower its v as far as they can without preferring another;
//   2. row reduction: free rows lower the v of their cheapest column until the second cheapest is as good, and take the
//      cheapest;
//   3. shortest augmenting paths for the rows that are left, by Dijkstra's search on all columns at once.
//
// Phase 1 is left out, and v begins at zero, where there are columns to spare (n < m) or column minima mislead.
#pragma once

#include "compiler.h"
#include "cost_matrix.h"
#include "exact_small_rows.h"
#include "row_loops.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>

namespace neurosql {

// Returns false if a cost is not finite or too large.
template <class T> NEUROSQL_INLINE bool reduce_columns(SmallState<T> &s, int64_t columns, bool square) {
    T suspect = 0;
    for (int64_t j = 0; j < s.width; ++j) s.lowest[j] = std::numeric_limits<T>::infinity();
    for (int64_t i = 0; i < s.rows; ++i) {
        const T *__restrict row = s.row(i);
        T *__restrict lowest = s.lowest;
        int32_t *__restrict owner = s.owner;
        T block_suspect[kBlock] = {};
        for (int64_t block = 0; block + kBlock <= columns; block += kBlock) {
            for (int64_t lane = 0; lane < kBlock; ++lane) block_suspect[lane] += suspicion(row[block + lane]);
        }
        for (int64_t j = columns / kBlock * kBlock; j < columns; ++j) suspect += suspicion(row[j]);
        for (int64_t lane = 0; lane < kBlock; ++lane) suspect += block_suspect[lane];
        if (!square) continue;
        const auto number = static_cast<int32_t>(i);
        for (int64_t j = 0; j < s.width; ++j) {
            owner[j] = row[j] < lowest[j] ? number : owner[j];
            lowest[j] = row[j] < lowest[j] ? row[j] : lowest[j];
        }
    }
    for (int64_t i = 0; i < s.rows; ++i) s.column_of[i] = -1;
    for (int64_t j = 0; j < s.width; ++j) s.row_of[j] = -1;
    for (int64_t j = 0; j < s.width; ++j) s.v[j] = square && j < columns ? static_cast<double>(s.lowest[j]) : 0.0;
    return suspect == 0;
}

// Rows take the first column that has its minimum in them; s.settled counts these columns.
template <class T> NEUROSQL_INLINE void assign_minima(SmallState<T> &s, int64_t columns) {
    for (int64_t i = 0; i < s.rows; ++i) s.settled[i] = 0;
    for (int64_t j = 0; j < columns; ++j) {
        const int32_t i = s.owner[j];
        if (s.settled[i]++ > 0) continue;
        s.column_of[i] = static_cast<int32_t>(j);
        s.row_of[j] = i;
    }
}

constexpr int64_t kJudges = 4;  // rows

template <class T> NEUROSQL_INLINE void transfer_reduction(SmallState<T> &s) {
    for (int64_t i = 0; i < s.rows; ++i) {
        if (s.settled[i] != 1) continue;
        const Lead lead = lead_of(s.row(i), s.v, s.width);
        ++s.work;
        if (std::isfinite(lead.second)) s.v[s.column_of[i]] -= lead.second - lead.first;
    }
}

// Whether v makes the costs within a row much more alike, judged by the steps from column to column in a few rows. It
// does where the rows are alike, and there too the column minima are in few rows.
template <class T> NEUROSQL_INLINE bool evens_out(const SmallState<T> &s, int64_t columns) {
    double before = 0.0, after = 0.0;
    for (int64_t k = 0; k < kJudges; ++k) {
        const int64_t i = k * s.rows / kJudges;
        const T *row = s.row(i);
        for (int64_t j = 1; j < columns; ++j) {
            before += std::abs(static_cast<double>(row[j]) - static_cast<double>(row[j - 1]));
            after += std::abs(s.reduced(i, j) - s.reduced(i, j - 1));
        }
    }
    return !(2.0 * after > before);
}

// Back to v = 0 and no row assigned.
template <class T> NEUROSQL_INLINE void forget(SmallState<T> &s) {
    for (int64_t j = 0; j < s.width; ++j) s.v[j] = 0.0;
    for (int64_t j = 0; j < s.width; ++j) s.row_of[j] = -1;
    for (int64_t i = 0; i < s.rows; ++i) s.column_of[i] = -1;
    for (int64_t i = 0; i < s.rows; ++i) s.free[i] = static_cast<int32_t>(i);
    s.free_count = s.rows;
}

template <class T> NEUROSQL_INLINE void reduce_free_rows(SmallState<T> &s, int64_t most) {
    const int64_t count = s.free_count;
    s.free_count = 0;  // rows that must wait take the places of rows already looked at
    for (int64_t k = 0; k < count; ++k) {
        int32_t i = s.free[k];
        while (i >= 0) {
            const T *row = s.row(i);
            const Lead lead = lead_of(row, s.v, s.width);
            ++s.work;
            const double lower = s.v[lead.column] - (lead.second - lead.first);
            int64_t column = lead.column;
            const bool ahead = std::isfinite(lower) && lower < s.v[column];
            if (ahead) {
                s.v[column] = lower;
            } else if (s.row_of[column] >= 0) {
                const int64_t other = find_reduced(row, s.v, s.width, lead.first, column + 1);
                if (other < s.width) column = other;
            }
            const int32_t loser = s.row_of[column];
            s.row_of[column] = i;
            s.column_of[i] = static_cast<int32_t>(column);
            if (loser >= 0) s.column_of[loser] = -1;
            if (loser >= 0 && (!ahead || s.work > most)) s.free[s.free_count++] = loser;
            i = ahead && s.work <= most ? loser : -1;
        }
    }
}

// False if no free column can be reached, which happens only where sums overflow.
template <class T> NEUROSQL_INLINE bool augment_row(SmallState<T> &s, int64_t source) {
    for (int64_t j = 0; j < s.width; ++j) s.distance[j] = kInfinity;
    for (int64_t j = 0; j < s.width; ++j) s.open[j] = s.v[j];
    int64_t i = source, count = 0, column;
    double base = 0.0, least;
    while (true) {
        ++s.work;
        least = relax_all(s, i, base);
        if (!(least < kInfinity)) return false;
        column = column_at(s, least);
        i = s.row_of[column];
        if (i < 0) break;
        s.settled[count] = static_cast<int32_t>(column);
        s.settled_at[count++] = least;
        s.distance[column] = kInfinity;
        s.open[column] = -kInfinity;
        base = least - s.reduced(i, column);
    }
    for (int64_t k = 0; k < count; ++k) s.v[s.settled[k]] -= least - s.settled_at[k];
    for (int32_t next = -1; next != source;) {
        next = s.predecessor[column];
        const int32_t left = s.column_of[next];
        s.row_of[column] = next;
        s.column_of[next] = static_cast<int32_t>(column);
        column = left;
    }
    return true;
}

enum class Outcome { solved, unfinished, not_finite };

// Measured on parts of a training run's matrices, chosen at random and along its assignment, and on random numbers.
constexpr int64_t kSmall = 512;        // columns
constexpr int64_t kAlwaysSmall = 320;  // rows; with more, only problems that phases 1 and 2 nearly solve
constexpr int64_t kPasses = 3;         // of the row reduction
constexpr int64_t kReads = 25;         // of each row on average; beyond that the lists of exact.h must be better
constexpr double kWideDuals = 0x1p14;  // times the typical size of the costs, as in exact_solver.h

// Finds u from v, and lists in s.free the rows that are above their minimum by more than rounding.
template <class T> NEUROSQL_INLINE void row_duals(SmallState<T> &s, double *u) {
    s.free_count = 0;
    for (int64_t i = 0; i < s.rows; ++i) {
        u[i] = least_reduced(s.row(i), s.v, s.width);
        const int64_t j = s.column_of[i];
        const double matched = s.reduced(i, j);
        s.free[s.free_count] = static_cast<int32_t>(i);
        s.free_count += !(matched <= u[i] + 4.0 * kRounding * (std::abs(matched) + std::abs(s.v[j])));
    }
}

// Whether v is so large that rounding drowns the costs of most rows.
template <class T> NEUROSQL_INLINE bool drowned(const SmallState<T> &s, int64_t columns) {
    double lowest = 0.0;
    for (int64_t j = 0; j < columns; ++j) lowest = s.v[j] < lowest ? s.v[j] : lowest;
    int64_t small = 0;
    for (int64_t i = 0; i < s.rows; ++i) {
        small += kWideDuals * std::abs(static_cast<double>(s.row(i)[s.column_of[i]])) < -lowest;
    }
    return 2 * small > s.rows;
}

// Shifts v by a constant so that v <= 0: for square problems.
template <class T> NEUROSQL_INLINE void shift_duals(SmallState<T> &s, int64_t columns) {
    double highest = s.v[0];
    for (int64_t j = 0; j < columns; ++j) highest = s.v[j] > highest ? s.v[j] : highest;
    for (int64_t j = 0; j < columns; ++j) s.v[j] -= highest;
}

template <class T> NEUROSQL_INLINE Outcome solve_small_loop(SmallState<T> &s, int64_t columns, double *u) {
    const int64_t n = s.rows;
    const bool square = n == columns;
    if (!reduce_columns(s, columns, square)) return Outcome::not_finite;
    if (square) assign_minima(s, columns);
    for (int64_t i = 0; i < n; ++i) {
        s.free[s.free_count] = static_cast<int32_t>(i);
        s.free_count += s.column_of[i] < 0;
    }
    // Where the column minima are in few rows, they may be misleading as v.
    const bool large = n > kAlwaysSmall, poor = square && 9 * s.free_count > 4 * n;
    if (large && poor) return Outcome::unfinished;
    if (poor && !evens_out(s, columns)) {
        forget(s);
    } else if (square) {
        transfer_reduction(s);
    }
    for (int64_t pass = 0; pass < kPasses && s.free_count > 0; ++pass) {
        reduce_free_rows(s, s.work + n);
        if (large && 6 * s.free_count > n) return Outcome::unfinished;
    }
    const int64_t most = large ? kReads * n : n * n + s.work;
    for (int64_t k = 0; k < s.free_count; ++k) {
        if (s.work > most || !augment_row(s, s.free[k])) return Outcome::unfinished;
    }
    // Rows that rounding has left above their minimum are assigned once more; see repair_rounding in exact.h for n < m.
    for (int round = 0; round < 3; ++round) {
        if (square) shift_duals(s, columns);
        row_duals(s, u);
        if (s.free_count == 0) return drowned(s, columns) ? Outcome::unfinished : Outcome::solved;
        if (!square) break;
        for (int64_t k = 0; k < s.free_count; ++k) {
            s.row_of[s.column_of[s.free[k]]] = -1;
            s.column_of[s.free[k]] = -1;
        }
        for (int64_t k = 0; k < s.free_count; ++k) {
            if (!augment_row(s, s.free[k])) return Outcome::unfinished;
        }
    }
    return Outcome::unfinished;
}

NEUROSQL_EACH_ISA static Outcome solve_small(SmallState<float> &s, int64_t columns, double *u) {
    return solve_small_loop(s, columns, u);
}

NEUROSQL_EACH_ISA static Outcome solve_small(SmallState<double> &s, int64_t columns, double *u) {
    return solve_small_loop(s, columns, u);
}

// Writes the permutation (n), u (n) and v (m) of an optimum. Where the outcome is unfinished they mean nothing.
template <class T>
Outcome small_assignment(const CostMatrix<T> &cost, int64_t *permutation, double *u, double *v) {
    const int64_t n = cost.rows, m = cost.columns, width = padded(m);
    const bool copied = width != m;
    const auto reals = static_cast<size_t>(3 * width + n);
    const auto costs = static_cast<size_t>(width + (copied ? n * width : 0));
    const auto integers = static_cast<size_t>(3 * width + 3 * n);
    std::unique_ptr<double[]> memory(
        new double[reals + (costs * sizeof(T) + integers * sizeof(int32_t)) / sizeof(double) + 2]);
    SmallState<T> s;
    s.rows = n;
    s.width = width;
    s.v = memory.get();
    s.distance = s.v + width;
    s.open = s.distance + width;
    s.settled_at = s.open + width;
    s.lowest = reinterpret_cast<T *>(s.settled_at + n);
    s.row_of = reinterpret_cast<int32_t *>(s.lowest + costs);
    s.predecessor = s.row_of + width;
    s.owner = s.predecessor + width;
    s.column_of = s.owner + width;
    s.free = s.column_of + n;
    s.settled = s.free + n;
    s.free_count = s.work = 0;
    s.cost = cost.data;
    s.stride = cost.stride;
    if (copied) {
        T *copy = s.lowest + width;
        for (int64_t i = 0; i < n; ++i) {
            std::copy_n(cost.row(i), m, copy + i * width);
            std::fill(copy + i * width + m, copy + (i + 1) * width, std::numeric_limits<T>::infinity());
        }
        s.cost = copy;
        s.stride = width;
    }
    const Outcome outcome = solve_small(s, m, u);
    if (outcome == Outcome::not_finite) throw std::invalid_argument("cost must be finite");
    std::copy_n(s.v, m, v);
    std::copy_n(s.column_of, n, permutation);
    return outcome;
}

}  // namespace neurosql
