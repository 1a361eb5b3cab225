// The linear assignment problem: exact with dual certificate, and greedy. See assign.py for the problem and its dual.
//
// The exact solver keeps column duals v that only ever fall, and for every row a short list of the columns that had
// the smallest reduced costs r_ij = C_ij - v_j when the list was made, with a threshold that no unlisted column was
// below. Falling duals only raise reduced costs, so the threshold stays valid, and a row's minimum is known from its
// list alone as long as it does not exceed the threshold; only then is the row read again. Rounding does not disturb
// this: C_ij - v_j is computed in the same way everywhere, in float64, and rounding is monotone.
//
//   1. start: v from the caller, from a random part of the problem, or column minima; each row takes its cheapest
//      column if that is free;
//   2. auction: free rows outbid each other, by at least epsilon; then rows above their minima are set free again;
//   3. row reduction: the same with bids that keep the assigned rows at their minima;
//   4. shortest augmenting paths for the rows that are left, which keep them there too;
//   5. u_i = min_j r_ij: with every row at its minimum, complementary slackness makes the matching optimal.
//
// Phases 2 and 3 are a matter of speed: whatever v and matching they leave, 4 and 5 make of it an optimum. With columns
// to spare (n < m) v begins at zero and phase 2 is left out, as a column that loses its row would have to return to
// v = 0. Costs that differ by less than the tolerance are an exception in favour of speed, see set_limits.
#pragma once

#include "parallel.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

// One binary serves all x86-64 machines: the loops over whole rows exist once for each instruction set, and the
// dynamic linker chooses. It needs GCC's multiversioning and glibc's indirect functions; elsewhere there is one loop.
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 11
#define NEUROSQL_EACH_ISA __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define NEUROSQL_EACH_ISA
#endif
#if defined(__GNUC__)
#define NEUROSQL_INLINE inline __attribute__((always_inline))
#else
#define NEUROSQL_INLINE inline
#endif

namespace neurosql {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kRounding = std::numeric_limits<double>::epsilon();

// Whole rows are read in panels of kSteps * kLanes columns. A group holds the columns of a panel that share a lane:
// their minimum is computed without any exchange between the lanes of a vector. The few groups that turn out to
// matter are then looked at one column at a time.

constexpr int64_t kLanes = 32;
constexpr int64_t kSteps = 16;
constexpr int64_t kPanel = kLanes * kSteps;
constexpr int64_t kClasses = 32;
constexpr int64_t kAhead = 2 * kPanel;  // costs; as far as loops over a row ask for memory

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

// Zero, or something else if the cost is not finite or too large; made for adding up over many.
NEUROSQL_INLINE float suspicion(float cost) { return cost * 0.0f; }
NEUROSQL_INLINE double suspicion(double cost) { return std::abs(cost) <= kLargestCost ? 0.0 : 1.0; }

// minima[g] = min of cost[j] - v[j] over the columns j of group g; infinity where the group is empty or all NaN.
// With Check returns whether all costs are finite and not too large, otherwise true.
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

// The `rank`-th smallest (from 1) of kClasses values, by counting for each how many are smaller: no branch depends on
// the values, which is much faster than any sorting of so few.
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

template <class T> struct CostMatrix {
    const T *data;
    int64_t rows, columns, stride;

    const T *row(int64_t i) const { return data + i * stride; }
    double at(int64_t i, int64_t j) const { return static_cast<double>(row(i)[j]); }
};

struct TwoSmallest {
    double first = kInfinity, second = kInfinity;
    int64_t first_column = -1, second_column = -1;

    void offer(double value, int64_t column) {
        if (!(value < second)) return;
        if (value < first) {
            second = first;
            second_column = first_column;
            first = value;
            first_column = column;
        } else {
            second = value;
            second_column = column;
        }
    }
};

// The two smallest of cost[j] - v[j], given the groups' minima. Among equals the first one found wins; the search
// begins in group `start`, so that rows which are indifferent between many columns do not all ask for the same one.
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

// For each row the columns with the smallest reduced costs, as they were when its list was made.
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
        std::vector<int32_t> groups, columns;  // one more than there can be, see collect
        std::vector<std::pair<double, int32_t>> below;

        explicit Scratch(int64_t m) : minima(group_count(m)), groups(group_count(m) + 1), columns(m + 1) {}
    };

    const Entry *begin(int64_t i) const { return &entries_[static_cast<size_t>(i) * kCapacity]; }
    const Entry *end(int64_t i) const { return begin(i) + length_[i]; }
    // No column outside row i's list has a reduced cost below this.
    double threshold(int64_t i) const { return threshold_[i]; }

    double reduced(const Entry &entry) const { return static_cast<double>(entry.cost) - v_[entry.column]; }

    // The two smallest reduced costs in the list, which need not be the row's. This is the innermost loop of the
    // auction, and free of branches that depend on costs; the second smallest one's column is not looked for.
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

    // Reads row i: the groups' minima in `scratch` are what the functions below begin with. The first reading of a row
    // is checked: false if a cost is not finite.
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

    // A list of the cheapest column alone, with the runner-up as threshold: enough for a row that keeps its column.
    void make_single(int64_t i, const TwoSmallest &best) {
        length_[i] = 0;
        append(i, best.first_column);
        threshold_[i] = best.second;
    }

    // Lists the columns up to a threshold that about kWanted to 2 kWanted columns do not exceed.
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

    // The columns are dealt into kClasses classes; of the minima of these, the kWanted-th smallest. Columns that are
    // alike should be in different classes, and in a Sobol sequence those are alike whose numbers differ by a multiple
    // of a power of two: hence the odd step from panel to panel.
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

    // Writes the columns up to the threshold into scratch.columns and returns their number. The loops write always
    // and count sometimes: a mispredicted branch costs more than several such steps.
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

    // For more columns than a list can hold. Those at the threshold itself may be very many, and any of them will do:
    // each row begins to choose at another place, so that the rows do not all compete for the same few.
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

struct WarmStart {
    const double *v = nullptr;
    const int64_t *permutation = nullptr;
};

struct Counters {
    int64_t kept = 0;        // rows that were assigned by the start
    int64_t bids = 0;        // steps of the auction and of the row reduction
    int64_t paths = 0;       // shortest augmenting paths
    int64_t path_steps = 0;  // columns that these paths' searches settled
    int64_t row_reads = 0;   // rows that were read as a whole after the start
};

template <class T> class Solver {
  public:
    Solver(const CostMatrix<T> &cost, double tolerance, int threads)
        : cost_(cost), n_(cost.rows), m_(cost.columns), tolerance_(tolerance), threads_(threads), v_(m_, 0.0),
          column_of_(n_, -1), row_of_(m_, -1), lists_(cost_, v_), scratch_(m_) {}

    void solve(const WarmStart &warm) {
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

    const std::vector<int64_t> &permutation() const { return column_of_; }
    const std::vector<double> &u() const { return u_; }
    const std::vector<double> &v() const { return v_; }
    bool exact() const { return exact_; }
    const Counters &counters() const { return counters_; }

  private:
    using Lists = CandidateLists<T>;

    bool square() const { return n_ == m_; }
    double reduced(int64_t i, int64_t j) const { return cost_.at(i, j) - v_[j]; }

    // Duals that are far larger than the differences between the costs of a row would drown these in rounding.
    bool usable(const double *v) const {
        if (v == nullptr || !std::all_of(v, v + m_, [](double value) { return std::isfinite(value); })) return false;
        const auto [low, high] = std::minmax_element(v, v + m_);
        return *high - *low <= kWide * size_;
    }

    // The size of a row's smallest cost or, if that is zero, its difference to the median, from a sample of rows.
    // Larger costs don't count: they may be there to forbid a match.
    double typical_size() const {
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

    void check_finite() const {
        for (int64_t i = 0; i < n_; ++i) {
            if (!all_finite(cost_.row(i), m_)) fail();
        }
    }

    static double median(std::vector<double> &values) {
        const auto middle = values.begin() + static_cast<int64_t>((values.size() - 1) / 2);
        std::nth_element(values.begin(), middle, values.end());
        return *middle;
    }

    // At most `most` of the numbers below `count`, evenly spaced.
    static std::vector<int64_t> sample(int64_t count, int64_t most) {
        const int64_t size = std::min(count, most);
        std::vector<int64_t> chosen(size);
        for (int64_t k = 0; k < size; ++k) chosen[k] = k * count / size;
        return chosen;
    }

    // In a square problem a constant may be added to v: with the largest at zero, garbage cannot drift far away.
    void start_from(const double *v) {
        const double highest = *std::max_element(v, v + m_);
        for (int64_t j = 0; j < m_; ++j) v_[j] = v[j] - highest;
    }

    struct Range {
        T lowest, highest;
    };

    static bool is_constant(const Range &range) { return range.lowest == range.highest; }

    // Column minima for v in a square problem, zero otherwise: a column without a row must have v = 0 at the end,
    // and the methods below assign a column whose v falls, for good.
    Range cold_start() {
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

    bool looks_constant() const {
        for (int64_t i : sample(n_, 16)) {
            const T *row = cost_.row(i);
            if (!std::all_of(row, row + m_, [&](T cost) { return cost == cost_.row(0)[0]; })) return false;
        }
        return true;
    }

    // v from a smaller problem of some rows and as many columns, chosen at random: its u_i extend to all columns as
    // v_j = min_i (C_ij - u_i). That is closer to the optimum than column minima are, without reading the matrix.
    void sampled_start(int64_t count) {
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

    static std::vector<int64_t> random_choice(int64_t count, int64_t size, uint64_t seed) {
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

    // Threads pay for themselves from about a million entries each.
    int64_t row_parts() const {
        if (threads_ < 2) return 1;
        return std::clamp<int64_t>(n_ * m_ / (int64_t{1} << 20), 1, std::min<int64_t>(threads_, n_));
    }

    // Rows keep their column of the last time if it is their cheapest, and take their cheapest one if it is free.
    void assign_minima(const int64_t *permutation) {
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
                // Among equals not every row should ask for the same one.
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

    // Whether column j is as good for row i as its minimum `least`, but for the rounding of r_ij.
    bool at_minimum(int64_t i, int64_t j, double least) const {
        const double value = reduced(i, j);
        return value <= least + 4.0 * kRounding * (std::abs(value) + std::abs(v_[j]));
    }

    // Gives column j to row i and returns the row that loses it, or -1.
    int64_t take(int64_t i, int64_t j) {
        const int64_t loser = row_of_[j];
        if (loser >= 0) column_of_[loser] = -1;
        row_of_[j] = i;
        column_of_[i] = j;
        return loser;
    }

    void release(int64_t i) {
        row_of_[column_of_[i]] = -1;
        column_of_[i] = -1;
        free_.push_back(i);
    }

    void renew(int64_t i) {
        ++counters_.row_reads;
        lists_.read(i, scratch_);
        lists_.make(i, scratch_);
    }

    TwoSmallest two_cheapest(int64_t i) {
        TwoSmallest best = lists_.listed(i);
        if (best.second > lists_.threshold(i)) {
            renew(i);
            best = lists_.listed(i);
        }
        return best;
    }

    double row_minimum(int64_t i) {
        TwoSmallest best = lists_.listed(i);
        if (best.first > lists_.threshold(i)) {
            renew(i);
            best = lists_.listed(i);
        }
        return best.first;
    }

    // In units of about a nanosecond, and independent of the machine.
    int64_t work() const { return counters_.row_reads * (m_ / 4) + counters_.bids * 32 + relaxed_ * 4; }

    bool out_of_work() const { return work() > most_work_; }

    // Effort: a generator that has collapsed makes all columns alike but for noise, and to find the very best of
    // nearly equal assignments may take a hundred times as long as usual. If the cheapest columns of a row differ by
    // little more than the tolerance, work is limited to several times the usual amount.
    //
    // Leads: a row with one cheap column among very expensive ones would lower v so far that rounding swallows the
    // costs of other rows. A smaller step is always allowed.
    void set_limits(double spread) {
        double mean = 0.0;
        for (int64_t i = 0; i < n_; ++i) mean += std::abs(smallest_cost_[i]) / static_cast<double>(n_);
        epsilon_floor_ = tolerance_ * mean;
        if (epsilon_floor_ > 0.0 && spread <= 100.0 * epsilon_floor_) {
            most_work_ = std::max<int64_t>(kUsualWorkTimes * n_ * m_, 1 << 24);
        }
        if (size_ > 0.0) largest_lead_ = kWide * size_;
    }

    // Assigns the rest with bids of at least the tolerance: every row is then within it of its minimum, and the mean
    // cost within it of the optimum. Where even that is long the exact methods go on after all.
    void settle_for_tolerance() {
        most_work_ = std::numeric_limits<int64_t>::max();
        exact_ = false;
        bid_from_afar(epsilon_floor_);
    }

    // How far apart the cheapest columns of a free row are, typically: those that its list holds. Infinity where the
    // lists hold all columns.
    double typical_spread() const {
        std::vector<double> spread;
        for (int64_t k : sample(static_cast<int64_t>(free_.size()), 48)) {
            const int64_t i = free_[k];
            const double width = lists_.threshold(i) - lists_.listed(i).first;
            const bool single = lists_.end(i) - lists_.begin(i) < 2;
            if (!single && std::isfinite(width)) spread.push_back(width);
        }
        return spread.empty() ? kInfinity : median(spread);
    }

    void bid_in_rounds(double spread, bool warm) {
        if (!std::isfinite(spread)) return;
        spread = std::min(spread, largest_lead_);
        if (spread > 0.0) {
            if (!warm) {
                auction(spread / kCoarse, kMostBids);
                release_above_minimum(spread / kFine);
            }
            auction(spread / kFine, warm ? kUsualBids : kMostBids);
        }
        // Equal costs are mostly settled without lowering v.
        if (spread <= 100.0 * epsilon_floor_) {
            release_above_minimum(0.0);
            reduce_rows();
        }
        if (!free_.empty()) bid_from_afar(std::max(spread / kFine, epsilon_floor_));
        release_above_minimum(0.0);
    }

    // Many columns, or rows, that are alike make the lists too short-sighted: whole groups of rows contend for groups
    // of columns, and outbid each other by little. Epsilon then falls from the width of whole rows.
    void bid_from_afar(double least) {
        const double width = std::min(typical_width(), largest_lead_);
        if (!(least > 0.0 && std::isfinite(width))) return;
        // Where that does not help, it should not cost much either.
        const int64_t most_work = std::exchange(most_work_, std::min(most_work_, work() + kAfarWorkTimes * n_ * m_));
        for (double epsilon = width / kCoarse; epsilon > least && !out_of_work(); epsilon /= kCoarse) {
            auction(epsilon, kMostBids);
            release_above_minimum(epsilon / kCoarse);
        }
        auction(least, kMostBids);
        most_work_ = most_work;
    }

    // From the smallest to the median reduced cost of a row.
    double typical_width() const {
        std::vector<double> widths;
        for (int64_t i : sample(n_, 16)) {
            std::vector<double> values(m_);
            for (int64_t j = 0; j < m_; ++j) values[j] = reduced(i, j);
            const double least = *std::min_element(values.begin(), values.end());
            widths.push_back(median(values) - least);
        }
        return median(widths);
    }

    // By how much the cheapest column is ahead. There is no second one in a row of a single finite cost.
    double lead(const TwoSmallest &best) const {
        const double difference = best.second - best.first;
        return std::isfinite(difference) ? std::min(difference, largest_lead_) : 0.0;
    }

    // Each free row takes its cheapest column and lowers its v until the second cheapest is better by epsilon.
    void auction(double epsilon, int64_t bids) {
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

    // Sets free the rows whose column costs them more than `slack` above their minimum.
    void release_above_minimum(double slack) {
        for (int64_t i = 0; i < n_; ++i) {
            const int64_t j = column_of_[i];
            if (j >= 0 && !at_minimum(i, j, row_minimum(i) + slack)) release(i);
        }
    }

    // As the auction with epsilon = 0: assigned rows stay at their minima. A row that is indifferent between two
    // columns can't lower v; its loser waits for the next pass, so that no two rows go on for ever.
    void reduce_rows() {
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
    int64_t reduce_row(int64_t i, std::vector<int64_t> &waiting) {
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

    // A column at its distance, or (as -1 - i) a row whose unlisted columns may begin at this distance.
    struct Node {
        double distance;
        int64_t id;
        bool operator<(const Node &other) const { return distance > other.distance; }
    };

    void push(double distance, int64_t id) {
        heap_.push_back({distance, id});
        std::push_heap(heap_.begin(), heap_.end());
    }

    Node pop() {
        std::pop_heap(heap_.begin(), heap_.end());
        const Node node = heap_.back();
        heap_.pop_back();
        return node;
    }

    void augment_all() {
        std::vector<int64_t> rows = std::exchange(free_, {});
        for (int64_t i : rows) {
            if (out_of_work()) {
                free_.push_back(i);
            } else {
                augment(i);
            }
        }
    }

    // Dijkstra's search over columns with lengths r_ij - u_i from the free row `source` to the nearest free column;
    // v falls along the tree so that all its edges stay tight, and the path is flipped.
    void augment(int64_t source) {
        ++counters_.paths;
        begin_search();
        double distance = 0.0;
        expand(source, distance - row_minimum(source));
        while (nearest_free_ > distance) {
            if (heap_.empty()) fail();
            const Node node = pop();
            if (node.id < 0) {
                expand_unlisted(-1 - node.id, node.distance);
                continue;
            }
            if (settled(node.id)) continue;
            distance = std::max(distance, node.distance);
            if (row_of_[node.id] < 0) break;
            settle(node.id, distance);
            const int64_t i = row_of_[node.id];
            expand(i, distance - reduced(i, node.id));
        }
        if (free_column_ < 0) fail();
        for (const auto &[column, at] : settled_) v_[column] -= std::max(0.0, nearest_free_ - at);
        flip_path(source, free_column_);
    }

    void begin_search() {
        if (stamp_.empty()) {
            stamp_.assign(m_, 0);
            distance_.resize(m_);
            predecessor_.resize(m_);
            base_.resize(n_);
        }
        search_ += 2;
        heap_.clear();
        settled_.clear();
        nearest_free_ = kInfinity;
        free_column_ = -1;
    }

    bool reached(int64_t j) const { return stamp_[j] >= search_; }
    bool settled(int64_t j) const { return stamp_[j] == search_ + 1; }

    void settle(int64_t j, double distance) {
        ++counters_.path_steps;
        stamp_[j] = search_ + 1;
        settled_.emplace_back(j, distance);
    }

    // Offers column j at reduced cost + base from row i.
    void relax(int64_t i, double base, int64_t j, T cost) {
        ++relaxed_;
        const double distance = base + (static_cast<double>(cost) - v_[j]);
        if (!(distance < nearest_free_) || settled(j)) return;
        if (reached(j) && !(distance < distance_[j])) return;
        stamp_[j] = search_;
        distance_[j] = distance;
        predecessor_[j] = i;
        if (row_of_[j] < 0) {
            nearest_free_ = distance;
            free_column_ = j;
        }
        push(distance, j);
    }

    void relax_list(int64_t i, double base) {
        for (auto entry = lists_.begin(i), last = lists_.end(i); entry < last; ++entry) {
            relax(i, base, entry->column, entry->cost);
        }
    }

    void expand(int64_t i, double base) {
        base_[i] = base;
        relax_list(i, base);
        const double unlisted = base + lists_.threshold(i);
        if (unlisted < nearest_free_) push(unlisted, -1 - i);
    }

    // A renewed list reaches further, as v has fallen since it was made. If it does not, or if the goal is in sight,
    // all columns are looked at.
    void expand_unlisted(int64_t i, double distance) {
        const double base = base_[i];
        if (!(distance < nearest_free_)) return;
        renew(i);
        const double unlisted = base + lists_.threshold(i);
        if (nearest_free_ == kInfinity && unlisted > distance) {
            relax_list(i, base);
            if (unlisted < nearest_free_) push(unlisted, -1 - i);
        } else {
            const double limit = nearest_free_ - base;
            lists_.for_all_below(i, limit, scratch_, [&](int64_t j, T cost) { relax(i, base, j, cost); });
        }
    }

    void flip_path(int64_t source, int64_t column) {
        for (int64_t i = -1; i != source;) {
            i = predecessor_[column];
            const int64_t left = column_of_[i];
            row_of_[column] = i;
            column_of_[i] = column;
            column = left;
        }
    }

    // Rounding along many paths may leave a row above its minimum: such rows are assigned once more. With columns to
    // spare that could leave a column without a row but with v < 0, which is worse than a rounding error.
    void repair_rounding() {
        for (int round = 0; square() && round < 3; ++round) {
            release_above_minimum(0.0);
            if (free_.empty()) return;
            augment_all();
        }
    }

    // For a square problem the constant that makes v <= 0, and u from v. The lists are brought up to date before, as
    // their thresholds do not hold for a v that has risen; the smallest entries are the same ones after.
    void finish() {
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

    [[noreturn]] static void fail() { throw std::invalid_argument("cost must be finite"); }

    static constexpr int64_t kSampledFrom = 1024;  // rows
    static constexpr int64_t kLargestSample = 640;
    static constexpr int64_t kMostBids = 500;  // a row, in each phase
    static constexpr int64_t kUsualBids = 60;
    static constexpr int64_t kUsualWorkTimes = 6;
    static constexpr int64_t kAfarWorkTimes = 10;
    // Times the typical size of costs: as many bits of these may be lost to rounding.
    static constexpr double kWide = 0x1p14;
    static constexpr int kPasses = 20;
    static constexpr double kExact = 1e-10;  // relative gap that rounding may leave
    // Epsilon is the typical spread over these, the coarse one in cold starts from column minima only. Measured on training runs: half or
    // twice as much makes little difference, no auction at all two to three times the time.
    static constexpr double kCoarse = 5.0;
    static constexpr double kFine = 50.0;

    const CostMatrix<T> cost_;
    const int64_t n_, m_;
    const double tolerance_;
    const int threads_;
    std::vector<double> u_, v_;
    std::vector<int64_t> column_of_, row_of_;
    std::vector<int64_t> free_;
    Lists lists_;
    typename Lists::Scratch scratch_;
    Counters counters_;
    std::vector<double> smallest_cost_;  // of each row, under the first v
    double size_ = 0.0, epsilon_floor_ = 0.0, largest_lead_ = kInfinity;
    int64_t relaxed_ = 0, most_work_ = std::numeric_limits<int64_t>::max();
    bool exact_ = true, constant_ = false;

    // The state of one search; a column belongs to it if its stamp is current.
    std::vector<int64_t> stamp_, predecessor_;
    std::vector<double> distance_, base_;
    std::vector<std::pair<int64_t, double>> settled_;
    std::vector<Node> heap_;
    int64_t search_ = 0;
    double nearest_free_ = kInfinity;
    int64_t free_column_ = -1;
};

// What greedy needs of a row, in one pass: the smallest cost, that of the free columns (`taken` is 0 for these and
// infinity for others), and whether all are finite.
template <class T> struct RowScan {
    T least, least_free;
    bool finite;
};

// `next` is the row that will be scanned after this one: asking for it now is faster than what the processor foresees.
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
        look(columns - kLanes, kLanes);  // the rest, and some columns for a second time
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

// Each row in turn takes its cheapest free column, the lowest of equals. The duals come from minima, rows first:
//
//   u_i = min_j C_ij,  v_j = min_i (C_ij - u_i),  then a constant from v to u so that v <= 0;
//
// v = 0 in the square problem wherever a row has its minimum, so v does not lower u again: one pass gives all. With
// columns to spare v is zero.
template <class T> class Greedy {
  public:
    explicit Greedy(const CostMatrix<T> &cost)
        : cost_(cost), columns_(cost.rows), u_(cost.rows), v_(cost.columns, 0.0) {}

    // `order` null stands for 0, 1, 2...
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
    // Where the constant takes away from the size of u, what was rounding before may be too much now.
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
