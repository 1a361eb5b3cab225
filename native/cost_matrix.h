// A matrix of costs, and the two smallest of a set of costs. All solvers share these.
#pragma once

#include <cstdint>
#include <limits>

namespace neurosql {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kRounding = std::numeric_limits<double>::epsilon();

template <class T> struct CostMatrix {
    const T *data;
    int64_t rows, columns, stride;

    const T *row(int64_t i) const { return data + i * stride; }
    double at(int64_t i, int64_t j) const { return static_cast<double>(row(i)[j]); }
};

// The two smallest of the values offered, and their indices.
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

}  // namespace neurosql
