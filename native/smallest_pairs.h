// The k smallest scores of every row and of every column of a matrix that is seen block by block.
// neurosql.assign.candidates finds its candidate pairs with this.
//
// A list takes every score below its threshold, which is infinite at first. Once it holds 2k scores, it drops all but
// the k smallest and lowers its threshold to the largest of those. A list that sees n scores in random order takes
// about k log(n / k) of them. Almost all scores are compared with a threshold and nothing else: that loop has no
// branches.
#pragma once

#include "compiler.h"
#include "parallel.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace neurosql {

constexpr int64_t kSpan = 64;    // scores that are compared together
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

    // Looks at a block of scores (height, width) whose first entry belongs to (first_row, first_column). One thread
    // fills each list, in the order of its indices: the result does not depend on the number of threads.
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
            for (int64_t j = begin; j < end; ++j) {
                columns_.offer(first_column + j, scores[j], static_cast<int32_t>(row));
            }
        }
    }

    SmallestLists rows_, columns_;
};

}  // namespace neurosql
