// Loops over whole rows of costs, compiled once per instruction set.
//
// Rows are read in panels of kSteps * kLanes columns. A group holds the columns of a panel that share a lane: their
// minimum is computed without any exchange between the lanes of a vector. The few groups that turn out to matter are
// then looked at one column at a time.
#pragma once

#include "compiler.h"
#include "cost_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace neurosql {

constexpr int64_t kLanes = 32;
constexpr int64_t kSteps = 16;
constexpr int64_t kPanel = kLanes * kSteps;
constexpr int64_t kClasses = 32;
constexpr int64_t kAhead = 2 * kPanel;  // how many costs ahead the loops over a row ask for memory

inline int64_t group_count(int64_t columns) { return (columns + kPanel - 1) / kPanel * kLanes; }

// Calls visit(column) for each column of a group.
template <class Visit> NEUROSQL_INLINE void for_columns(int64_t group, int64_t columns, Visit visit) {
    const int64_t panel = group / kLanes * kPanel;
    const int64_t end = std::min(columns, panel + kPanel);
    for (int64_t column = panel + group % kLanes; column < end; column += kLanes) visit(column);
}

// Asks for the cache lines of kLanes costs.
template <class T> NEUROSQL_INLINE void prefetch(const T *cost) {
#if defined(__GNUC__)
    constexpr int64_t line = 64 / sizeof(T);
    for (int64_t lane = 0; lane < kLanes; lane += line) __builtin_prefetch(cost + lane);
#else
    (void)cost;
#endif
}

// Sums over rows and paths of larger costs could overflow float64.
constexpr double kLargestCost = 1e300;

// Zero for a good cost, not zero for one that is not finite or too large. Sums over many costs keep that property.
NEUROSQL_INLINE float suspicion(float cost) { return cost * 0.0f; }
NEUROSQL_INLINE double suspicion(double cost) { return std::abs(cost) <= kLargestCost ? 0.0 : 1.0; }

// minima[g] = min of cost[j] - v[j] over the columns j of group g; infinity where the group is empty or all NaN.
// With Check, returns whether all costs are finite and not too large; without it, true.
template <bool Check, class T>
NEUROSQL_INLINE bool group_minima_loop(const T *cost, const double *v, int64_t columns, double *minima) {
    T suspect[kLanes] = {};
    for (int64_t begin = 0; begin < columns; begin += kPanel, minima += kLanes) {
        const int64_t width = std::min(kPanel, columns - begin);
        double best[kLanes];
        for (int64_t lane = 0; lane < kLanes; ++lane) best[lane] = kInfinity;
        int64_t step = 0;
        for (; step + kLanes <= width; step += kLanes) {
            const T *c = cost + begin + step;
            const double *d = v + begin + step;
            prefetch(c + kAhead);
            for (int64_t lane = 0; lane < kLanes; ++lane) {
                const double reduced = static_cast<double>(c[lane]) - d[lane];
                best[lane] = reduced < best[lane] ? reduced : best[lane];
                if (Check) suspect[lane] += suspicion(c[lane]);
            }
        }
        for (int64_t lane = 0; step + lane < width; ++lane) {
            const T c = cost[begin + step + lane];
            const double reduced = static_cast<double>(c) - v[begin + step + lane];
            best[lane] = reduced < best[lane] ? reduced : best[lane];
            if (Check) suspect[lane] += suspicion(c);
        }
        for (int64_t lane = 0; lane < kLanes; ++lane) minima[lane] = best[lane];
    }
    T total = 0;
    for (int64_t lane = 0; lane < kLanes; ++lane) total += suspect[lane];
    return total == 0;
}

NEUROSQL_EACH_ISA static void group_minima(const float *cost, const double *v, int64_t columns, double *minima) {
    group_minima_loop<false>(cost, v, columns, minima);
}

NEUROSQL_EACH_ISA static void group_minima(const double *cost, const double *v, int64_t columns, double *minima) {
    group_minima_loop<false>(cost, v, columns, minima);
}

NEUROSQL_EACH_ISA static bool checked_minima(const float *cost, const double *v, int64_t columns, double *minima) {
    return group_minima_loop<true>(cost, v, columns, minima);
}

NEUROSQL_EACH_ISA static bool checked_minima(const double *cost, const double *v, int64_t columns, double *minima) {
    return group_minima_loop<true>(cost, v, columns, minima);
}

template <class T> NEUROSQL_INLINE bool all_finite_loop(const T *cost, int64_t columns) {
    T suspect[kLanes] = {}, total = 0;
    int64_t step = 0;
    for (; step + kLanes <= columns; step += kLanes) {
        for (int64_t lane = 0; lane < kLanes; ++lane) suspect[lane] += suspicion(cost[step + lane]);
    }
    for (; step < columns; ++step) total += suspicion(cost[step]);
    for (int64_t lane = 0; lane < kLanes; ++lane) total += suspect[lane];
    return total == 0;
}

NEUROSQL_EACH_ISA static bool all_finite(const float *cost, int64_t columns) { return all_finite_loop(cost, columns); }
NEUROSQL_EACH_ISA static bool all_finite(const double *cost, int64_t columns) { return all_finite_loop(cost, columns); }

// The smallest of the groups' minima.
NEUROSQL_EACH_ISA static double smallest(const double *minima, int64_t groups) {
    double best[kLanes];
    for (int64_t lane = 0; lane < kLanes; ++lane) best[lane] = minima[lane];
    for (int64_t begin = kLanes; begin < groups; begin += kLanes) {
        for (int64_t lane = 0; lane < kLanes; ++lane) {
            best[lane] = minima[begin + lane] < best[lane] ? minima[begin + lane] : best[lane];
        }
    }
    for (int64_t half = kLanes / 2; half > 0; half /= 2) {
        for (int64_t lane = 0; lane < half; ++lane) {
            best[lane] = best[lane + half] < best[lane] ? best[lane + half] : best[lane];
        }
    }
    return best[0];
}

// The `rank`-th smallest (from 1) of kClasses values, by counting for each value how many are smaller. No branch
// depends on the values, which makes it much faster than sorting for this few.
NEUROSQL_EACH_ISA static double ranked(const double *values, int64_t rank) {
    double smaller[kClasses] = {};
    for (int64_t other = 0; other < kClasses; ++other) {
        const double value = values[other];
        for (int64_t k = 0; k < kClasses; ++k) smaller[k] += value < values[k] ? 1.0 : 0.0;
    }
    double found = -kInfinity;
    for (int64_t k = 0; k < kClasses; ++k) {
        const double candidate = smaller[k] < static_cast<double>(rank) ? values[k] : -kInfinity;
        found = candidate > found ? candidate : found;
    }
    return found;
}

// lowest[j] = min(lowest[j], cost[j]), and the same for the highest.
template <class T> NEUROSQL_INLINE void column_range_loop(const T *cost, int64_t columns, T *lowest, T *highest) {
    for (int64_t j = 0; j < columns; ++j) {
        lowest[j] = cost[j] < lowest[j] ? cost[j] : lowest[j];
        highest[j] = cost[j] > highest[j] ? cost[j] : highest[j];
    }
}

NEUROSQL_EACH_ISA static void column_range(const float *cost, int64_t columns, float *lowest, float *highest) {
    column_range_loop(cost, columns, lowest, highest);
}

NEUROSQL_EACH_ISA static void column_range(const double *cost, int64_t columns, double *lowest, double *highest) {
    column_range_loop(cost, columns, lowest, highest);
}

// v[j] = min(v[j], first[j] - least_first, second[j] - least_second): two rows for one pass over v.
template <class T>
NEUROSQL_INLINE void lower_loop(const T *first, double least_first, const T *second, double least_second,
                                int64_t columns, double *v) {
    for (int64_t j = 0; j < columns; ++j) {
        const double a = static_cast<double>(first[j]) - least_first, b = static_cast<double>(second[j]) - least_second;
        const double less = a < b ? a : b;
        v[j] = less < v[j] ? less : v[j];
    }
}

NEUROSQL_EACH_ISA static void lower(const float *first, double least_first, const float *second, double least_second,
                                    int64_t columns, double *v) {
    lower_loop(first, least_first, second, least_second, columns, v);
}

NEUROSQL_EACH_ISA static void lower(const double *first, double least_first, const double *second,
                                    double least_second, int64_t columns, double *v) {
    lower_loop(first, least_first, second, least_second, columns, v);
}

// The two smallest of cost[j] - v[j], given the groups' minima. Among equals the first one found wins. The search
// begins in group `start`: rows that are indifferent between many columns then do not all ask for the same one.
template <class T>
TwoSmallest two_smallest(const T *cost, const double *v, int64_t columns, const double *minima, int64_t start = 0) {
    const int64_t groups = group_count(columns);
    TwoSmallest best;  // of the groups' minima
    for (int64_t k = 0, g = start; k < groups; ++k, g = g + 1 < groups ? g + 1 : 0) best.offer(minima[g], g);
    TwoSmallest found;
    if (best.first_column < 0) return found;
    auto offer = [&](int64_t j) { found.offer(static_cast<double>(cost[j]) - v[j], j); };
    for_columns(best.first_column, columns, offer);
    if (best.second_column >= 0) for_columns(best.second_column, columns, offer);
    return found;
}

}  // namespace neurosql
