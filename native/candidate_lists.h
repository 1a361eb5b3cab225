// For each row, the columns that had the smallest reduced costs when the row's list was made. The exact solver works on
// these lists; exact.h explains why they are enough. (The candidate pairs of neurosql.assign.candidates are something
// else: see smallest_pairs.h.)
#pragma once

#include "cost_matrix.h"
#include "row_loops.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace neurosql {

template <class T> class CandidateLists {
  public:
    CandidateLists(const CostMatrix<T> &cost, const std::vector<double> &v)
        : cost_(cost), v_(v), entries_(new Entry[static_cast<size_t>(cost.rows) * kCapacity]), length_(cost.rows, 0),
          threshold_(cost.rows, -kInfinity) {}

    struct Entry {
        int32_t column;
        T cost;
    };

    struct Scratch {
        std::vector<double> minima;
        std::vector<int32_t> groups, columns;  // one place more than can be needed, see collect
        std::vector<std::pair<double, int32_t>> below;

        explicit Scratch(int64_t m) : minima(group_count(m)), groups(group_count(m) + 1), columns(m + 1) {}
    };

    const Entry *begin(int64_t i) const { return &entries_[static_cast<size_t>(i) * kCapacity]; }
    const Entry *end(int64_t i) const { return begin(i) + length_[i]; }
    // No column outside row i's list has a reduced cost below this.
    double threshold(int64_t i) const { return threshold_[i]; }

    double reduced(const Entry &entry) const { return static_cast<double>(entry.cost) - v_[entry.column]; }

    // The two smallest reduced costs in the list, which need not be the row's. This is the innermost loop of the
    // auction: no branch depends on costs, and it does not find the column of the second smallest.
    TwoSmallest listed(int64_t i) const {
        double first = kInfinity, second = kInfinity;
        int64_t column = -1;
        for (const Entry *entry = begin(i), *last = end(i); entry < last; ++entry) {
            const double value = reduced(*entry);
            const double larger = value > first ? value : first;
            second = larger < second ? larger : second;
            column = value < first ? entry->column : column;
            first = value < first ? value : first;
        }
        return {first, second, column, -1};
    }

    // A column of the list other than `column` with this reduced cost, or -1.
    int64_t listed_at(int64_t i, double value, int64_t column) const {
        for (const Entry *entry = begin(i), *last = end(i); entry < last; ++entry) {
            if (entry->column != column && reduced(*entry) == value) return entry->column;
        }
        return -1;
    }

    // Reads row i and leaves the groups' minima in `scratch`, where the functions below begin. The first reading of a
    // row is checked: it returns false if a cost is not finite.
    bool read_checked(int64_t i, Scratch &scratch) const {
        return checked_minima(cost_.row(i), v_.data(), cost_.columns, scratch.minima.data());
    }

    void read(int64_t i, Scratch &scratch) const {
        group_minima(cost_.row(i), v_.data(), cost_.columns, scratch.minima.data());
    }

    double least(const Scratch &scratch) const {
        return smallest(scratch.minima.data(), static_cast<int64_t>(scratch.minima.size()));
    }

    TwoSmallest two_cheapest(int64_t i, const Scratch &scratch) const {
        const int64_t start = i * group_count(cost_.columns) / cost_.rows;
        return two_smallest(cost_.row(i), v_.data(), cost_.columns, scratch.minima.data(), start);
    }

    // Lists the cheapest column alone, with the runner-up as the threshold: enough for a row that keeps its column.
    void make_single(int64_t i, const TwoSmallest &best) {
        length_[i] = 0;
        append(i, best.first_column);
        threshold_[i] = best.second;
    }

    // Lists the columns up to a threshold, chosen so that about kWanted to 2 kWanted columns do not exceed it.
    void make(int64_t i, Scratch &scratch) {
        length_[i] = 0;
        if (cost_.columns <= kCapacity) {
            for (int64_t j = 0; j < cost_.columns; ++j) append(i, j);
            threshold_[i] = kInfinity;
            return;
        }
        threshold_[i] = ranked_minimum(scratch.minima);
        const int64_t found = collect(i, scratch);
        if (found <= kCapacity) {
            for (int64_t k = 0; k < found; ++k) append(i, scratch.columns[k]);
        } else {
            keep_smallest(i, scratch, found);
        }
    }

    // Calls visit(column, cost) for the columns of row i with a reduced cost below `limit`.
    template <class Visit> void for_all_below(int64_t i, double limit, const Scratch &scratch, Visit visit) const {
        const T *cost = cost_.row(i);
        for (int64_t g = 0, groups = group_count(cost_.columns); g < groups; ++g) {
            if (!(scratch.minima[g] < limit)) continue;
            for_columns(g, cost_.columns, [&](int64_t j) {
                if (static_cast<double>(cost[j]) - v_[j] < limit) visit(j, cost[j]);
            });
        }
    }

  private:
    static constexpr int64_t kWanted = 16;
    static constexpr int64_t kCapacity = 48;
    static_assert(kWanted <= kLanes, "a row has at least that many classes with columns in them");

    void append(int64_t i, int64_t column) {
        entries_[static_cast<size_t>(i) * kCapacity + length_[i]++] = {static_cast<int32_t>(column),
                                                                       cost_.row(i)[column]};
    }

    // Deals the columns into kClasses classes and returns the kWanted-th smallest of the classes' minima. Columns that
    // are alike should be in different classes. In a Sobol sequence, columns are alike whose numbers differ by a
    // multiple of a power of two: hence the odd step from panel to panel.
    static double ranked_minimum(const std::vector<double> &minima) {
        double least[kClasses];
        std::fill_n(least, kClasses, kInfinity);
        const auto groups = static_cast<int64_t>(minima.size());
        for (int64_t begin = 0, shift = 0; begin < groups; begin += kLanes, shift += kLanes + 1) {
            for (int64_t lane = 0; lane < kLanes; ++lane) {
                double &known = least[(shift + lane) % kClasses];
                known = minima[begin + lane] < known ? minima[begin + lane] : known;
            }
        }
        return ranked(least, kWanted);
    }

    // Writes the columns up to the threshold into scratch.columns and returns their number. The loops always write and
    // only sometimes count: a mispredicted branch costs more than several such steps.
    int64_t collect(int64_t i, Scratch &scratch) const {
        const T *cost = cost_.row(i);
        const double limit = threshold_[i];
        const auto total = static_cast<int64_t>(scratch.minima.size());
        int64_t groups = 0;
        for (int64_t g = 0; g < total; ++g) {
            scratch.groups[groups] = static_cast<int32_t>(g);
            groups += scratch.minima[g] <= limit;
        }
        int64_t found = 0;
        for (int64_t k = 0; k < groups; ++k) {
            for_columns(scratch.groups[k], cost_.columns, [&](int64_t j) {
                scratch.columns[found] = static_cast<int32_t>(j);
                found += static_cast<double>(cost[j]) - v_[j] <= limit;
            });
        }
        return found;
    }

    // For more columns than a list can hold. Very many may be at the threshold itself, and any of them will do: each
    // row begins to choose at a different place, so that the rows do not all compete for the same few.
    void keep_smallest(int64_t i, Scratch &scratch, int64_t found) {
        const double limit = threshold_[i];
        const int64_t place = i * found / cost_.rows;
        int32_t ties[kCapacity];
        int64_t tied = 0;
        auto &below = scratch.below;
        below.clear();
        for (int64_t k = 0; k < found; ++k) {
            const int32_t j = scratch.columns[k < found - place ? place + k : place + k - found];
            const double reduced = cost_.at(i, j) - v_[j];
            if (reduced < limit) {
                below.emplace_back(reduced, j);
            } else if (tied < kCapacity) {
                ties[tied++] = j;
            }
        }
        if (static_cast<int64_t>(below.size()) > kCapacity) {
            std::nth_element(below.begin(), below.begin() + kCapacity, below.end());
            threshold_[i] = below[kCapacity].first;
            below.resize(kCapacity);
        }
        for (const auto &[reduced, column] : below) append(i, column);
        for (int64_t k = 0; k < tied && length_[i] < kCapacity; ++k) append(i, ties[k]);
    }

    const CostMatrix<T> &cost_;
    const std::vector<double> &v_;
    std::unique_ptr<Entry[]> entries_;
    std::vector<int32_t> length_;
    std::vector<double> threshold_;
};

}  // namespace neurosql
