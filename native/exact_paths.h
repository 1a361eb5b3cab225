// Phase 4 of the exact solver: shortest augmenting paths for the rows that are still free.
#pragma once

#include "exact_solver.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace neurosql {

template <class T> inline void Solver<T>::push(double distance, int64_t id) {
    heap_.push_back({distance, id});
    std::push_heap(heap_.begin(), heap_.end());
}

template <class T> inline auto Solver<T>::pop() -> Node {
    std::pop_heap(heap_.begin(), heap_.end());
    const Node node = heap_.back();
    heap_.pop_back();
    return node;
}

template <class T> inline void Solver<T>::augment_all() {
    std::vector<int64_t> rows = std::exchange(free_, {});
    for (int64_t i : rows) {
        if (out_of_work()) {
            free_.push_back(i);
        } else {
            augment(i);
        }
    }
}

// Dijkstra's search over columns, with lengths r_ij - u_i, from the free row `source` to the nearest free column. Then
// v falls along the tree so that all its edges stay tight, and the path is flipped.
template <class T> inline void Solver<T>::augment(int64_t source) {
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

template <class T> inline void Solver<T>::begin_search() {
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

template <class T> inline void Solver<T>::settle(int64_t j, double distance) {
    ++counters_.path_steps;
    stamp_[j] = search_ + 1;
    settled_.emplace_back(j, distance);
}

// Offers column j at reduced cost + base from row i.
template <class T> inline void Solver<T>::relax(int64_t i, double base, int64_t j, T cost) {
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

template <class T> inline void Solver<T>::relax_list(int64_t i, double base) {
    for (auto entry = lists_.begin(i), last = lists_.end(i); entry < last; ++entry) {
        relax(i, base, entry->column, entry->cost);
    }
}

template <class T> inline void Solver<T>::expand(int64_t i, double base) {
    base_[i] = base;
    relax_list(i, base);
    const double unlisted = base + lists_.threshold(i);
    if (unlisted < nearest_free_) push(unlisted, -1 - i);
}

// A renewed list reaches further, because v has fallen since it was made. If it does not, or if the goal is in sight,
// all columns are looked at.
template <class T> inline void Solver<T>::expand_unlisted(int64_t i, double distance) {
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

template <class T> inline void Solver<T>::flip_path(int64_t source, int64_t column) {
    for (int64_t i = -1; i != source;) {
        i = predecessor_[column];
        const int64_t left = column_of_[i];
        row_of_[column] = i;
        column_of_[i] = column;
        column = left;
    }
}

}  // namespace neurosql
