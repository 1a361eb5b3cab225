// The auction on a sparse graph, where only some pairs of rows and columns are known. See neurosql.assign.candidates. A
// row may also stay without a column, at the cost `outside`:
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
// columns, v falls) brings about (a). Columns that an earlier, coarser phase made expensive may then be left without a
// row; the reverse auction (columns bid for rows, v rises) brings about (b).
#pragma once

#include "cost_matrix.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace neurosql {

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

    // Rows without a column bid again, and so do rows whose column this epsilon does not allow.
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

    // The row that has waited the shortest time bids first: its prices are still in the cache.
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

    // A column without a row asks for the row that gains most from it. It keeps as much of the gain as the runner-up
    // would have offered, less epsilon; at v = 0 it asks no more. Each bid lowers a row's value by at least epsilon.
    void reverse(double epsilon) {
        std::vector<int64_t> columns;
        for (int64_t j = graph_.columns - 1; j >= 0; --j) {
            if (row_of_[j] < 0 && v_[j] < 0.0) columns.push_back(j);
        }
        while (!columns.empty() && !out_of_bids()) {
            const int64_t j = columns.back();
            columns.pop_back();
            ++counters_.reverse_bids;
            TwoSmallest best;  // of the negative gains
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

    // After giving up, free columns still go to rows without one: lower rows first, each to its cheapest free column.
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

    // Stores the same pairs by column.
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
