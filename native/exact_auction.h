// Phases 2 and 3 of the exact solver: free rows bid for columns, first by at least epsilon (auction), then so that
// assigned rows stay at their minima (row reduction).
#pragma once

#include "exact_solver.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace neurosql {

// Limits the work and the leads.
//
// Work: a generator that has collapsed makes all columns alike up to noise, and finding the very best of nearly equal
// assignments may take a hundred times as long as usual. If the cheapest columns of a row differ by little more than
// the tolerance, the work is limited to several times the usual amount.
//
// Leads: a row with one cheap column among very expensive ones would lower v so far that rounding swallows the costs of
// other rows. A smaller step is always allowed.
template <class T> inline void Solver<T>::set_limits(double spread) {
    double mean = 0.0;
    for (int64_t i = 0; i < n_; ++i) mean += std::abs(smallest_cost_[i]) / static_cast<double>(n_);
    epsilon_floor_ = tolerance_ * mean;
    if (epsilon_floor_ > 0.0 && spread <= 100.0 * epsilon_floor_) {
        most_work_ = std::max<int64_t>(kUsualWorkTimes * n_ * m_, 1 << 24);
    }
    if (size_ > 0.0) largest_lead_ = kWide * size_;
}

// Assigns the rest with bids of at least the tolerance. Every row is then within the tolerance of its minimum, and the
// mean cost within the tolerance of the optimum. Where even that takes too long, the exact phases finish the work.
template <class T> inline void Solver<T>::settle_for_tolerance() {
    most_work_ = std::numeric_limits<int64_t>::max();
    exact_ = false;
    bid_from_afar(epsilon_floor_);
}

// How far apart the cheapest columns of a free row typically are, judged by its list. Infinity where the lists hold all
// columns.
template <class T> inline double Solver<T>::typical_spread() const {
    std::vector<double> spread;
    for (int64_t k : sample(static_cast<int64_t>(free_.size()), 48)) {
        const int64_t i = free_[k];
        const double width = lists_.threshold(i) - lists_.listed(i).first;
        const bool single = lists_.end(i) - lists_.begin(i) < 2;
        if (!single && std::isfinite(width)) spread.push_back(width);
    }
    return spread.empty() ? kInfinity : median(spread);
}

template <class T> inline void Solver<T>::bid_in_rounds(double spread, bool warm) {
    if (!std::isfinite(spread)) return;
    spread = std::min(spread, largest_lead_);
    if (spread > 0.0) {
        if (!warm) {
            auction(spread / kCoarse, kMostBids);
            release_above_minimum(spread / kFine);
        }
        auction(spread / kFine, warm ? kUsualBids : kMostBids);
    }
    // Most equal costs are settled without lowering v.
    if (spread <= 100.0 * epsilon_floor_) {
        release_above_minimum(0.0);
        reduce_rows();
    }
    if (!free_.empty()) bid_from_afar(std::max(spread / kFine, epsilon_floor_));
    release_above_minimum(0.0);
}

// Where many columns or rows are alike, the lists do not reach far enough: whole groups of rows contend for groups of
// columns and outbid each other by little. Here epsilon begins with the width of whole rows and falls from there.
template <class T> inline void Solver<T>::bid_from_afar(double least) {
    const double width = std::min(typical_width(), largest_lead_);
    if (!(least > 0.0 && std::isfinite(width))) return;
    // Where this does not help, it should not cost much either.
    const int64_t most_work = std::exchange(most_work_, std::min(most_work_, work() + kAfarWorkTimes * n_ * m_));
    for (double epsilon = width / kCoarse; epsilon > least && !out_of_work(); epsilon /= kCoarse) {
        auction(epsilon, kMostBids);
        release_above_minimum(epsilon / kCoarse);
    }
    auction(least, kMostBids);
    most_work_ = most_work;
}

// How far the median reduced cost of a row typically is above the smallest.
template <class T> inline double Solver<T>::typical_width() const {
    std::vector<double> widths;
    for (int64_t i : sample(n_, 16)) {
        std::vector<double> values(m_);
        for (int64_t j = 0; j < m_; ++j) values[j] = reduced(i, j);
        const double least = *std::min_element(values.begin(), values.end());
        widths.push_back(median(values) - least);
    }
    return median(widths);
}

// By how much the cheapest column is ahead. A row with a single finite cost has no second cheapest column.
template <class T> inline double Solver<T>::lead(const TwoSmallest &best) const {
    const double difference = best.second - best.first;
    return std::isfinite(difference) ? std::min(difference, largest_lead_) : 0.0;
}

// Each free row takes its cheapest column and lowers its v until the second cheapest is better by epsilon.
template <class T> inline void Solver<T>::auction(double epsilon, int64_t bids) {
    const int64_t most = counters_.bids + bids * n_;
    while (!free_.empty() && counters_.bids < most && !out_of_work()) {
        const int64_t i = free_.back();
        free_.pop_back();
        ++counters_.bids;
        const TwoSmallest best = two_cheapest(i);
        v_[best.first_column] -= lead(best) + epsilon;
        const int64_t loser = take(i, best.first_column);
        if (loser >= 0) free_.push_back(loser);
    }
}

// Sets free each row whose column costs it more than `slack` above its minimum.
template <class T> inline void Solver<T>::release_above_minimum(double slack) {
    for (int64_t i = 0; i < n_; ++i) {
        const int64_t j = column_of_[i];
        if (j >= 0 && !at_minimum(i, j, row_minimum(i) + slack)) release(i);
    }
}

// The auction with epsilon = 0: assigned rows stay at their minima. A row that is indifferent between two columns
// cannot lower v; the row that loses its column to it waits for the next pass, so that no two rows go on for ever.
template <class T> inline void Solver<T>::reduce_rows() {
    const int64_t most = counters_.bids + kMostBids * n_;
    for (int pass = 0; pass < kPasses && !free_.empty(); ++pass) {
        std::vector<int64_t> waiting;
        for (int64_t next : free_) {
            int64_t i = next;
            while (i >= 0 && counters_.bids < most && !out_of_work()) i = reduce_row(i, waiting);
            if (i >= 0) waiting.push_back(i);
        }
        free_.swap(waiting);
    }
}

// Assigns row i; returns the row to go on with, or -1.
template <class T> inline int64_t Solver<T>::reduce_row(int64_t i, std::vector<int64_t> &waiting) {
    ++counters_.bids;
    const TwoSmallest best = two_cheapest(i);
    int64_t column = best.first_column;
    if (lead(best) > 0.0) {
        v_[column] -= lead(best);
        return take(i, column);
    }
    if (row_of_[column] >= 0) {
        const int64_t other = lists_.listed_at(i, best.first, column);
        if (other >= 0) column = other;
    }
    const int64_t loser = take(i, column);
    if (loser >= 0) waiting.push_back(loser);
    return -1;
}

}  // namespace neurosql
