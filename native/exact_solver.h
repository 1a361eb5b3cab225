// The exact solver: its state, its steps by phase, and the small steps that several phases share. exact.h explains the
// method and runs the phases.
#pragma once

#include "candidate_lists.h"
#include "cost_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

namespace neurosql {

struct WarmStart {
    const double *v = nullptr;
    const int64_t *permutation = nullptr;
};

struct Counters {
    int64_t kept = 0;        // rows that the start assigned
    int64_t bids = 0;        // steps of the auction and of the row reduction
    int64_t paths = 0;       // shortest augmenting paths
    int64_t path_steps = 0;  // columns that the searches for these paths settled
    int64_t row_reads = 0;   // whole rows read after the start
};

// Every step is declared `inline` where it is defined, as it would be inside the class: compilers weigh that.
template <class T> class Solver {
  public:
    Solver(const CostMatrix<T> &cost, double tolerance, int threads)
        : cost_(cost), n_(cost.rows), m_(cost.columns), tolerance_(tolerance), threads_(threads), v_(m_, 0.0),
          column_of_(n_, -1), row_of_(m_, -1), lists_(cost_, v_), scratch_(m_) {}

    void solve(const WarmStart &warm);

    const std::vector<int64_t> &permutation() const { return column_of_; }
    const std::vector<double> &u() const { return u_; }
    const std::vector<double> &v() const { return v_; }
    bool exact() const { return exact_; }
    const Counters &counters() const { return counters_; }

  private:
    using Lists = CandidateLists<T>;

    // The lowest and the highest cost.
    struct Range {
        T lowest, highest;
    };

    // A column at its distance, or (as -1 - i) row i at the distance from which its unlisted columns may begin.
    struct Node {
        double distance;
        int64_t id;
        bool operator<(const Node &other) const { return distance > other.distance; }
    };

    // Shared by the phases, below.
    bool square() const { return n_ == m_; }
    double reduced(int64_t i, int64_t j) const { return cost_.at(i, j) - v_[j]; }
    static double median(std::vector<double> &values);
    static std::vector<int64_t> sample(int64_t count, int64_t most);
    bool at_minimum(int64_t i, int64_t j, double least) const;
    int64_t take(int64_t i, int64_t j);
    void release(int64_t i);
    void renew(int64_t i);
    TwoSmallest two_cheapest(int64_t i);
    double row_minimum(int64_t i);
    int64_t work() const;
    bool out_of_work() const;
    [[noreturn]] static void fail() { throw std::invalid_argument("cost must be finite"); }

    // Phase 1: exact_start.h.
    bool usable(const double *v) const;
    double typical_size() const;
    void check_finite() const;
    void start_from(const double *v);
    static bool is_constant(const Range &range) { return range.lowest == range.highest; }
    Range cold_start();
    bool looks_constant() const;
    void sampled_start(int64_t count);
    static std::vector<int64_t> random_choice(int64_t count, int64_t size, uint64_t seed);
    int64_t row_parts() const;
    void assign_minima(const int64_t *permutation);

    // Phases 2 and 3: exact_auction.h.
    void set_limits(double spread);
    void settle_for_tolerance();
    double typical_spread() const;
    void bid_in_rounds(double spread, bool warm);
    void bid_from_afar(double least);
    double typical_width() const;
    double lead(const TwoSmallest &best) const;
    void auction(double epsilon, int64_t bids);
    void release_above_minimum(double slack);
    void reduce_rows();
    int64_t reduce_row(int64_t i, std::vector<int64_t> &waiting);

    // Phase 4: exact_paths.h.
    void push(double distance, int64_t id);
    Node pop();
    void augment_all();
    void augment(int64_t source);
    void begin_search();
    bool reached(int64_t j) const { return stamp_[j] >= search_; }
    bool settled(int64_t j) const { return stamp_[j] == search_ + 1; }
    void settle(int64_t j, double distance);
    void relax(int64_t i, double base, int64_t j, T cost);
    void relax_list(int64_t i, double base);
    void expand(int64_t i, double base);
    void expand_unlisted(int64_t i, double distance);
    void flip_path(int64_t source, int64_t column);

    // Phase 5: exact.h.
    void repair_rounding();
    void finish();

    static constexpr int64_t kSampledFrom = 1024;  // rows
    static constexpr int64_t kLargestSample = 640;
    static constexpr int64_t kMostBids = 500;  // per row, in each phase
    static constexpr int64_t kUsualBids = 60;
    // Limits of the work, in units of n m.
    static constexpr int64_t kUsualWorkTimes = 6;
    static constexpr int64_t kAfarWorkTimes = 10;
    // Duals may be this many times the typical size of the costs: rounding then costs these 14 of their bits.
    static constexpr double kWide = 0x1p14;
    static constexpr int kPasses = 20;
    static constexpr double kExact = 1e-10;  // the relative gap that rounding may leave
    // Epsilon is the typical spread divided by one of these; only cold starts from column minima use the coarse one.
    // Measured on training runs: half or twice the value makes little difference, and no auction at all makes the
    // solver take two to three times as long.
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
    std::vector<double> smallest_cost_;  // the cost of each row's cheapest column under the first v
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

template <class T> inline double Solver<T>::median(std::vector<double> &values) {
    const auto middle = values.begin() + static_cast<int64_t>((values.size() - 1) / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

// At most `most` of the numbers below `count`, evenly spaced.
template <class T> inline std::vector<int64_t> Solver<T>::sample(int64_t count, int64_t most) {
    const int64_t size = std::min(count, most);
    std::vector<int64_t> chosen(size);
    for (int64_t k = 0; k < size; ++k) chosen[k] = k * count / size;
    return chosen;
}

// Whether column j is as good for row i as its minimum `least`, up to the rounding of r_ij.
template <class T> inline bool Solver<T>::at_minimum(int64_t i, int64_t j, double least) const {
    const double value = reduced(i, j);
    return value <= least + 4.0 * kRounding * (std::abs(value) + std::abs(v_[j]));
}

// Gives column j to row i and returns the row that loses it, or -1.
template <class T> inline int64_t Solver<T>::take(int64_t i, int64_t j) {
    const int64_t loser = row_of_[j];
    if (loser >= 0) column_of_[loser] = -1;
    row_of_[j] = i;
    column_of_[i] = j;
    return loser;
}

template <class T> inline void Solver<T>::release(int64_t i) {
    row_of_[column_of_[i]] = -1;
    column_of_[i] = -1;
    free_.push_back(i);
}

// Reads row i as a whole and makes its list again.
template <class T> inline void Solver<T>::renew(int64_t i) {
    ++counters_.row_reads;
    lists_.read(i, scratch_);
    lists_.make(i, scratch_);
}

template <class T> inline TwoSmallest Solver<T>::two_cheapest(int64_t i) {
    TwoSmallest best = lists_.listed(i);
    if (best.second > lists_.threshold(i)) {
        renew(i);
        best = lists_.listed(i);
    }
    return best;
}

template <class T> inline double Solver<T>::row_minimum(int64_t i) {
    TwoSmallest best = lists_.listed(i);
    if (best.first > lists_.threshold(i)) {
        renew(i);
        best = lists_.listed(i);
    }
    return best.first;
}

// In units of about a nanosecond. It counts steps, so it does not depend on the machine.
template <class T> inline int64_t Solver<T>::work() const {
    return counters_.row_reads * (m_ / 4) + counters_.bids * 32 + relaxed_ * 4;
}

template <class T> inline bool Solver<T>::out_of_work() const { return work() > most_work_; }

}  // namespace neurosql
