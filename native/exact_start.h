// Phase 1 of the exact solver: the first column duals v, and the rows that can have their cheapest column at once.
#pragma once

#include "exact_solver.h"
#include "parallel.h"
#include "row_loops.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace neurosql {

// Whether v can serve as a start: finite, and not so large that rounding drowns the differences between a row's costs.
template <class T> inline bool Solver<T>::usable(const double *v) const {
    if (v == nullptr || !std::all_of(v, v + m_, [](double value) { return std::isfinite(value); })) return false;
    const auto [low, high] = std::minmax_element(v, v + m_);
    return *high - *low <= kWide * size_;
}

// The typical size of a row's smallest cost, from a sample of rows; if that is zero, its typical distance from the
// row's median. Larger costs do not count: they may be there to forbid a match.
template <class T> inline double Solver<T>::typical_size() const {
    std::vector<double> sizes, differences;
    for (int64_t i : sample(n_, 16)) {
        if (!all_finite(cost_.row(i), m_)) fail();
        sizes.push_back(std::abs(static_cast<double>(*std::min_element(cost_.row(i), cost_.row(i) + m_))));
    }
    const double size = median(sizes);
    if (size > 0.0) return size;
    for (int64_t i : sample(n_, 16)) {
        std::vector<double> costs(cost_.row(i), cost_.row(i) + m_);
        const double least = *std::min_element(costs.begin(), costs.end());
        differences.push_back(median(costs) - least);
    }
    return median(differences);
}

template <class T> inline void Solver<T>::check_finite() const {
    for (int64_t i = 0; i < n_; ++i) {
        if (!all_finite(cost_.row(i), m_)) fail();
    }
}

// A square problem allows a constant to be added to v: with the largest at zero, bad values cannot drift far away.
template <class T> inline void Solver<T>::start_from(const double *v) {
    const double highest = *std::max_element(v, v + m_);
    for (int64_t j = 0; j < m_; ++j) v_[j] = v[j] - highest;
}

// Takes column minima for v in a square problem, and zero otherwise: a column without a row must have v = 0 at the end,
// and once the later phases lower a column's v, that column stays assigned.
template <class T> inline auto Solver<T>::cold_start() -> Range {
    const int64_t parts = row_parts();
    std::vector<std::vector<T>> lowest(parts), highest(parts);
    parallel_parts(parts, threads_, [&](int64_t part, int) {
        lowest[part].assign(m_, std::numeric_limits<T>::infinity());
        highest[part].assign(m_, -std::numeric_limits<T>::infinity());
        for (int64_t i = part * n_ / parts; i < (part + 1) * n_ / parts; ++i) {
            column_range(cost_.row(i), m_, lowest[part].data(), highest[part].data());
        }
    });
    Range range{lowest[0][0], highest[0][0]};
    for (int64_t part = 0; part < parts; ++part) {
        for (int64_t j = 0; j < m_; ++j) {
            range.lowest = std::min(range.lowest, lowest[part][j]);
            range.highest = std::max(range.highest, highest[part][j]);
            lowest[0][j] = std::min(lowest[0][j], lowest[part][j]);
        }
    }
    if (square()) {
        for (int64_t j = 0; j < m_; ++j) {
            if (std::isfinite(lowest[0][j])) v_[j] = static_cast<double>(lowest[0][j]);
        }
    }
    return range;
}

template <class T> inline bool Solver<T>::looks_constant() const {
    for (int64_t i : sample(n_, 16)) {
        const T *row = cost_.row(i);
        if (!std::all_of(row, row + m_, [&](T cost) { return cost == cost_.row(0)[0]; })) return false;
    }
    return true;
}

// Takes v from a smaller problem: some rows and equally many columns, chosen at random. Its u_i extend to all columns
// as v_j = min_i (C_ij - u_i). That is closer to the optimum than column minima are, and reads only those rows.
template <class T> inline void Solver<T>::sampled_start(int64_t count) {
    const std::vector<int64_t> rows = random_choice(n_, count, 1), columns = random_choice(m_, count, 2);
    std::vector<T> part(static_cast<size_t>(count) * count);
    for (int64_t a = 0; a < count; ++a) {
        const T *row = cost_.row(rows[a]);
        for (int64_t b = 0; b < count; ++b) part[a * count + b] = row[columns[b]];
    }
    for (T cost : part) {
        if (!(suspicion(cost) == 0)) fail();
    }
    Solver<T> smaller({part.data(), count, count, count}, tolerance_, 1);
    smaller.solve({});
    const std::vector<double> &u = smaller.u();
    std::fill(v_.begin(), v_.end(), kInfinity);
    for (int64_t a = 0; a < count; a += 2) {
        const int64_t b = std::min(a + 1, count - 1);
        lower(cost_.row(rows[a]), u[a], cost_.row(rows[b]), u[b], m_, v_.data());
    }
    if (!std::all_of(v_.begin(), v_.end(), [](double v) { return std::isfinite(v); })) fail();
    const double highest = *std::max_element(v_.begin(), v_.end());
    for (double &v : v_) v = std::max(v - highest, -kWide * size_);
}

template <class T> inline std::vector<int64_t> Solver<T>::random_choice(int64_t count, int64_t size, uint64_t seed) {
    std::vector<int64_t> all(count);
    std::iota(all.begin(), all.end(), 0);
    uint64_t state = seed;
    for (int64_t k = 0; k < size; ++k) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        std::swap(all[k], all[k + static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(count - k))]);
    }
    all.resize(size);
    std::sort(all.begin(), all.end());
    return all;
}

// Threads pay for themselves from about a million entries per thread.
template <class T> inline int64_t Solver<T>::row_parts() const {
    if (threads_ < 2) return 1;
    return std::clamp<int64_t>(n_ * m_ / (int64_t{1} << 20), 1, std::min<int64_t>(threads_, n_));
}

// Rows keep their earlier column if it is still their cheapest; the others take their cheapest column if it is free.
template <class T> inline void Solver<T>::assign_minima(const int64_t *permutation) {
    std::vector<int64_t> cheapest(n_, -1);
    std::vector<char> keeps(n_, 0);
    smallest_cost_.assign(n_, 0.0);
    const int64_t parts = row_parts();
    parallel_parts(parts, threads_, [&](int64_t part, int) {
        typename Lists::Scratch scratch(m_);
        for (int64_t i = part * n_ / parts; i < (part + 1) * n_ / parts; ++i) {
            if (!lists_.read_checked(i, scratch)) return;
            const int64_t old = permutation == nullptr ? -1 : permutation[i];
            keeps[i] = old >= 0 && old < m_ && at_minimum(i, old, lists_.least(scratch));
            if (!keeps[i]) lists_.make(i, scratch);
            TwoSmallest best = lists_.listed(i);
            // Among equal columns, not every row should ask for the same one.
            if (keeps[i] || !(best.first < best.second)) best = lists_.two_cheapest(i, scratch);
            if (keeps[i]) lists_.make_single(i, best);
            cheapest[i] = best.first_column;
            smallest_cost_[i] = cost_.at(i, best.first_column);
        }
    });
    if (std::find(cheapest.begin(), cheapest.end(), -1) != cheapest.end()) fail();
    for (int64_t i = 0; i < n_; ++i) {
        if (keeps[i] && row_of_[permutation[i]] < 0) take(i, permutation[i]);
    }
    for (int64_t i = 0; i < n_; ++i) {
        if (column_of_[i] >= 0) continue;
        if (row_of_[cheapest[i]] < 0) {
            take(i, cheapest[i]);
        } else {
            free_.push_back(i);
        }
    }
    counters_.kept = n_ - static_cast<int64_t>(free_.size());
}

}  // namespace neurosql
