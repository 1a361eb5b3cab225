// Assignment where only some pairs are known: the search for the pairs, and the auction among them. See candidates.py.
#pragma once

#include "compiler.h"
#include "cost_matrix.h"
#include "parallel.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace neurosql {

// ---------------------------------------------------------------------------------------------------------------
// The k smallest scores of every row and of every column of a matrix that is seen block by block.
//
// A list takes every score below its threshold, which is infinite at first. Full at 2k scores, it drops all but the k
// smallest and lowers its threshold to the largest of them, so that a list of n scores in random order takes about
// k log(n / k) of them. Almost all scores are compared with a threshold and nothing else: that loop has no branches.

constexpr int64_t kSpan = 64;  // scores that are compared together
constexpr int64_t kStrip = 512;  // columns whose thresholds stay in the nearest cache

NEUROSQL_EACH_ISA static bool any_below(const float *scores, float threshold) {
    int32_t below = 0;
    for (int64_t k = 0; k < kSpan; ++k) below |= scores[k] < threshold;
    return below != 0;
}

NEUROSQL_EACH_ISA static bool any_below_each(const float *scores, const float *thresholds) {
    int32_t below = 0;
    for (int64_t k = 0; k < kSpan; ++k) below |= scores[k] < thresholds[k];
    return below != 0;
}

class SmallestLists {
  public:
    SmallestLists(int64_t lists, int64_t k)
        : k_(k), scores_(static_cast<size_t>(lists * 2 * k)), length_(static_cast<size_t>(lists), 0),
          threshold_(static_cast<size_t>(lists), std::numeric_limits<float>::infinity()) {}

    const float *thresholds() const { return threshold_.data(); }

    void offer(int64_t list, float score, int32_t index) {
        if (!(score < threshold_[list])) return;
        Score *begin = &scores_[static_cast<size_t>(list * 2 * k_)];
        begin[length_[list]++] = {score, index};
        if (length_[list] == 2 * k_) shorten(list);
    }

    // The indices of list `list` in ascending order, padded with -1 to a length of k.
    void indices(int64_t list, int32_t *out) {
        if (length_[list] > k_) shorten(list);
        const Score *begin = &scores_[static_cast<size_t>(list * 2 * k_)];
        std::transform(begin, begin + length_[list], out, [](const Score &entry) { return entry.index; });
        std::sort(out, out + length_[list]);
        std::fill(out + length_[list], out + k_, -1);
    }

  private:
    struct Score {
        float value;
        int32_t index;
        bool operator<(const Score &other) const {
            return value < other.value || (value == other.value && index < other.index);
        }
    };

    void shorten(int64_t list) {
        Score *begin = &scores_[static_cast<size_t>(list * 2 * k_)];
        std::nth_element(begin, begin + (k_ - 1), begin + length_[list]);
        length_[list] = k_;
        threshold_[list] = begin[k_ - 1].value;
    }

    int64_t k_;
    std::vector<Score> scores_;
    std::vector<int64_t> length_;
    std::vector<float> threshold_;
};

class SmallestPairs {
  public:
    SmallestPairs(int64_t rows, int64_t columns, int64_t k)
        : k(k), row_count(rows), column_count(columns), rows_(rows, k), columns_(columns, k) {}

    // Looks at a block of scores, (height, width), whose first entry belongs to (first_row, first_column). Each list
    // is filled by one thread and in the order of its indices: the result does not depend on the number of threads.
    void offer(const float *scores, int64_t height, int64_t width, int64_t first_row, int64_t first_column,
               int threads) {
        const int64_t band = std::max<int64_t>(1, height / (4 * threads));
        parallel_parts((height + band - 1) / band, threads, [&](int64_t part, int) {
            for (int64_t i = part * band, last = std::min(height, i + band); i < last; ++i) {
                offer_to_row(scores + i * width, width, first_row + i, first_column);
            }
        });
        parallel_parts((width + kStrip - 1) / kStrip, threads, [&](int64_t part, int) {
            const int64_t begin = part * kStrip, count = std::min(kStrip, width - begin);
            for (int64_t i = 0; i < height; ++i) {
                offer_to_columns(scores + i * width + begin, count, first_row + i, first_column + begin);
            }
        });
    }

    void row(int64_t i, int32_t *out) { rows_.indices(i, out); }
    void column(int64_t j, int32_t *out) { columns_.indices(j, out); }

    const int64_t k, row_count, column_count;

  private:
    void offer_to_row(const float *scores, int64_t width, int64_t row, int64_t first_column) {
        for (int64_t begin = 0; begin < width; begin += kSpan) {
            const int64_t end = std::min(begin + kSpan, width);
            if (end - begin == kSpan && !any_below(scores + begin, rows_.thresholds()[row])) continue;
            for (int64_t j = begin; j < end; ++j) rows_.offer(row, scores[j], static_cast<int32_t>(first_column + j));
        }
    }

    void offer_to_columns(const float *scores, int64_t width, int64_t row, int64_t first_column) {
        for (int64_t begin = 0; begin < width; begin += kSpan) {
            const int64_t end = std::min(begin + kSpan, width);
            const float *thresholds = columns_.thresholds() + first_column + begin;
            if (end - begin == kSpan && !any_below_each(scores + begin, thresholds)) continue;
            for (int64_t j = begin; j < end; ++j) columns_.offer(first_column + j, scores[j], static_cast<int32_t>(row));
        }
    }

    SmallestLists rows_, columns_;
};

// ---------------------------------------------------------------------------------------------------------------
// The auction on a sparse graph, in which a row may also stay without a column, at the cost `outside`:
//
//   primal   min over partial matchings π   Σ_matched C[i, π(i)] + outside * (number of rows without a column)
//   dual     max over u, v                  Σ_i u_i + Σ_j v_j
//            subject to                     u_i + v_j <= C[i, j] on the graph,  u_i <= outside,  v_j <= 0
//
// A phase ends with a matching that is within epsilon of the optimum for every row (epsilon complementary slackness):
// with value_i = C[i, π(i)] - v_π(i), or `outside` for a row without a column,
//
//   (a)  value_i <= outside + epsilon,   value_i <= C[i, j] - v_j + epsilon   for every pair (i, j) of the graph;
//   (b)  v_j = 0 for every column without a row.
//
// Summed over rows, the primal value is at most n epsilon above the dual one. The forward auction (rows bid for
// columns, v falls) brings about (a). Columns that an earlier, coarser phase made dear may then be left without a row;
// the reverse auction (columns bid for rows, v rises) brings about (b).

struct Graph {
    const int64_t *begin;  // (rows + 1,): pairs of row i are begin[i] .. begin[i + 1] - 1
    const int32_t *column;
    const float *cost;
    int64_t rows, columns;

    int64_t pairs() const { return begin[rows]; }
};

struct SparseCounters {
    int64_t bids = 0, reverse_bids = 0;
    bool gave_up = false;
};

class SparseAuction {
  public:
    SparseAuction(const Graph &graph, double outside, int64_t most_bids)
        : graph_(graph), outside_(outside), most_bids_(most_bids), v_(graph.columns, 0.0), value_(graph.rows, outside),
          column_of_(graph.rows, -1), row_of_(graph.columns, -1) {
        transpose();
    }

    void solve(const double *epsilons, int64_t phases) {
        for (int64_t phase = 0; phase < phases && !counters_.gave_up; ++phase) {
            release_above(epsilons[phase]);
            forward(epsilons[phase]);
            reverse(epsilons[phase]);
        }
        if (counters_.gave_up) match_free_columns();
    }

    const std::vector<int64_t> &permutation() const { return column_of_; }
    const std::vector<double> &column_duals() const { return v_; }
    const SparseCounters &counters() const { return counters_; }

    // u_i = min(outside, min_j C[i, j] - v_j): feasible with v, whatever happened before.
    std::vector<double> row_duals() const {
        std::vector<double> u(graph_.rows);
        for (int64_t i = 0; i < graph_.rows; ++i) u[i] = std::min(outside_, cheapest(i).first);
        return u;
    }

  private:
    double reduced(int64_t pair) const { return static_cast<double>(graph_.cost[pair]) - v_[graph_.column[pair]]; }

    // The two smallest reduced costs of row i and the column of the first, without branches that depend on costs.
    TwoSmallest cheapest(int64_t i) const {
        double first = kInfinity, second = kInfinity;
        int64_t column = -1;
        for (int64_t pair = graph_.begin[i], end = graph_.begin[i + 1]; pair < end; ++pair) {
            const double value = reduced(pair);
            const double larger = value > first ? value : first;
            second = larger < second ? larger : second;
            column = value < first ? graph_.column[pair] : column;
            first = value < first ? value : first;
        }
        return {first, second, column, -1};
    }

    // Rows that an epsilon of this size does not allow to stay where they are, and rows without a column, bid again.
    void release_above(double epsilon) {
        waiting_.clear();
        for (int64_t i = graph_.rows - 1; i >= 0; --i) {
            const double least = std::min(outside_, cheapest(i).first);
            if (column_of_[i] >= 0 && value_[i] <= least + epsilon) continue;
            if (column_of_[i] >= 0) row_of_[column_of_[i]] = -1;
            leave(i);
            waiting_.push_back(i);
        }
    }

    void leave(int64_t i) {
        column_of_[i] = -1;
        value_[i] = outside_;
    }

    bool out_of_bids() {
        counters_.gave_up = counters_.gave_up || counters_.bids + counters_.reverse_bids >= most_bids_;
        return counters_.gave_up;
    }

    // The row that waited least bids first: its prices are still in the cache.
    void forward(double epsilon) {
        while (!waiting_.empty() && !out_of_bids()) {
            const int64_t i = waiting_.back();
            waiting_.pop_back();
            ++counters_.bids;
            const TwoSmallest best = cheapest(i);
            if (!(best.first < outside_)) continue;
            const int64_t j = best.first_column, loser = row_of_[j];
            const double offered = std::min(best.second, outside_) + epsilon;
            v_[j] -= offered - best.first;
            take(i, j, offered);
            if (loser >= 0) {
                leave(loser);
                waiting_.push_back(loser);
            }
        }
    }

    void take(int64_t i, int64_t j, double value) {
        column_of_[i] = j;
        row_of_[j] = i;
        value_[i] = value;
    }

    // A column without a row asks for the row that gains most from it, and leaves it as much as the runner-up would
    // have needed, less epsilon; at v = 0 it asks no more. Each bid lowers a row's value by at least epsilon.
    void reverse(double epsilon) {
        std::vector<int64_t> columns;
        for (int64_t j = graph_.columns - 1; j >= 0; --j) {
            if (row_of_[j] < 0 && v_[j] < 0.0) columns.push_back(j);
        }
        while (!columns.empty() && !out_of_bids()) {
            const int64_t j = columns.back();
            columns.pop_back();
            ++counters_.reverse_bids;
            TwoSmallest best;  // of minus the gains
            for (int64_t k = column_begin_[j]; k < column_begin_[j + 1]; ++k) {
                best.offer(static_cast<double>(cost_of_[k]) - value_[row_at_[k]], k);
            }
            const double gain = -best.first, runner_up = std::max(0.0, -best.second - epsilon);
            if (!(gain > epsilon)) {
                v_[j] = 0.0;
                continue;
            }
            const int64_t i = row_at_[best.first_column], left = column_of_[i];
            v_[j] = -runner_up;
            take(i, j, static_cast<double>(cost_of_[best.first_column]) + runner_up);
            if (left >= 0) {
                row_of_[left] = -1;
                if (v_[left] < 0.0) columns.push_back(left);
            }
        }
    }

    // After giving up, a free column still serves a row that has none: the lower row first, its cheapest column.
    void match_free_columns() {
        for (int64_t i = 0; i < graph_.rows; ++i) {
            if (column_of_[i] >= 0) continue;
            TwoSmallest best;
            for (int64_t pair = graph_.begin[i]; pair < graph_.begin[i + 1]; ++pair) {
                const int64_t j = graph_.column[pair];
                if (row_of_[j] < 0) best.offer(static_cast<double>(graph_.cost[pair]), j);
            }
            if (best.first < outside_) take(i, best.first_column, best.first);
        }
    }

    // The same pairs by columns.
    void transpose() {
        column_begin_.assign(graph_.columns + 1, 0);
        for (int64_t pair = 0; pair < graph_.pairs(); ++pair) ++column_begin_[graph_.column[pair] + 1];
        for (int64_t j = 0; j < graph_.columns; ++j) column_begin_[j + 1] += column_begin_[j];
        row_at_.resize(graph_.pairs());
        cost_of_.resize(graph_.pairs());
        std::vector<int64_t> next(column_begin_.begin(), column_begin_.end() - 1);
        for (int64_t i = 0; i < graph_.rows; ++i) {
            for (int64_t pair = graph_.begin[i]; pair < graph_.begin[i + 1]; ++pair) {
                const int64_t at = next[graph_.column[pair]]++;
                row_at_[at] = static_cast<int32_t>(i);
                cost_of_[at] = graph_.cost[pair];
            }
        }
    }

    const Graph graph_;
    const double outside_;
    const int64_t most_bids_;
    std::vector<double> v_, value_;
    std::vector<int64_t> column_of_, row_of_, waiting_;
    std::vector<int64_t> column_begin_;
    std::vector<int32_t> row_at_;
    std::vector<float> cost_of_;
    SparseCounters counters_;
};

}  // namespace neurosql
