// The linear assignment problem, solved exactly and with a dual certificate. See neurosql.assign.solvers for the
// problem and its dual.
//
// The solver keeps column duals v that only ever fall. For every row it keeps a short list of the columns that had the
// smallest reduced costs r_ij = C_ij - v_j when the list was made, and a threshold: no column outside the list was
// below it. Falling duals only raise reduced costs, so the threshold stays valid. As long as the smallest listed value
// does not exceed the threshold, it is the row's minimum; only when it does is the whole row read again. Rounding does
// not disturb this: C_ij - v_j is computed in the same way everywhere, in float64, and rounding is monotone.
//
//   1. start: v from the caller, from a random part of the problem, or from column minima; each row takes its cheapest
//      column if that column is free;
//   2. auction: free rows outbid each other, by at least epsilon; then rows above their minima are set free again;
//   3. row reduction: the same with bids that keep the assigned rows at their minima;
//   4. shortest augmenting paths for the rows that are left; these keep the assigned rows at their minima too;
//   5. u_i = min_j r_ij: with every row at its minimum, complementary slackness makes the matching optimal.
//
// Phases 2 and 3 only save time: whatever v and matching they leave, phases 4 and 5 turn it into an optimum. With
// columns to spare (n < m), v begins at zero and phase 2 is left out, because a column that loses its row would have to
// return to v = 0. Costs that differ by less than the tolerance are an exception, in favour of speed: see set_limits.
//
// Small problems are solved faster by exact_small.h.
#pragma once

#include "exact_auction.h"
#include "exact_paths.h"
#include "exact_solver.h"
#include "exact_start.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace neurosql {

template <class T> inline void Solver<T>::solve(const WarmStart &warm) {
    if (n_ == 0) return;
    size_ = typical_size();
    const bool warm_v = square() && usable(warm.v);
    const bool sampled = !warm_v && square() && n_ >= kSampledFrom && !looks_constant();
    if (warm_v) {
        start_from(warm.v);
    } else if (sampled) {
        sampled_start(std::min(n_ / 8, kLargestSample));
    } else if (is_constant(cold_start())) {
        check_finite();
        for (int64_t i = 0; i < n_; ++i) take(i, i);
        constant_ = true;
        finish();
        return;
    }
    assign_minima(warm.permutation);
    if (!free_.empty()) {
        const double spread = typical_spread();
        set_limits(spread);
        if (square()) bid_in_rounds(spread, warm_v || sampled);
        reduce_rows();
        augment_all();
    }
    if (!free_.empty()) settle_for_tolerance();
    augment_all();
    if (exact_) repair_rounding();
    finish();
}

// Rounding along many paths may leave a row above its minimum: such rows are assigned once more. With columns to spare
// that could leave a column with v < 0 but without a row, which is worse than a rounding error.
template <class T> inline void Solver<T>::repair_rounding() {
    for (int round = 0; square() && round < 3; ++round) {
        release_above_minimum(0.0);
        if (free_.empty()) return;
        augment_all();
    }
}

// Shifts v by a constant so that v <= 0 (square problems only), and finds u from v. The lists are brought up to date
// first, because their thresholds do not hold for a v that has risen; their smallest entries stay the same.
template <class T> inline void Solver<T>::finish() {
    for (int64_t i = 0; i < n_ && !constant_; ++i) row_minimum(i);
    if (square()) {
        const double highest = *std::max_element(v_.begin(), v_.end());
        for (double &v : v_) v -= highest;
    }
    u_.resize(n_);
    double slack = 0.0, size = 0.0;
    for (int64_t i = 0; i < n_; ++i) {
        const int64_t j = column_of_[i];
        u_[i] = constant_ ? reduced(i, j) : lists_.listed(i).first;
        slack += reduced(i, j) - u_[i];
        size += std::abs(u_[i]) + std::abs(v_[j]);
    }
    exact_ = exact_ && slack <= kExact * size;
}

}  // namespace neurosql
