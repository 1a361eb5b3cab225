// Vectors of LANES floats, their arithmetic, and the way between one image after another (rows of floats) and one value
// of LANES images (vectors).
#pragma once

#include "compiler.h"
#include "pairwise.h"

#if defined(__clang__)
#define NEUROSQL_UNROLL _Pragma("clang loop unroll(full)")
#else
#define NEUROSQL_UNROLL _Pragma("GCC unroll 32")
#endif

namespace neurosql {
namespace NEUROSQL_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif

typedef float Vec __attribute__((vector_size(4 * LANES)));
typedef float LooseVec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t Bits __attribute__((vector_size(4 * LANES)));

// A Vec in double takes two vectors: compilers spill vectors that are wider than a register.
typedef double Doubles __attribute__((vector_size(4 * LANES)));
typedef float HalfVec __attribute__((vector_size(2 * LANES), aligned(4), may_alias));
struct Wide {
    Doubles low, high;
};

NEUROSQL_INLINE Vec zero() { return Vec{}; }
NEUROSQL_INLINE Vec broadcast(float value) { return value - Vec{}; }
NEUROSQL_INLINE Vec load(const float *from) { return *reinterpret_cast<const LooseVec *>(from); }
NEUROSQL_INLINE void store(float *to, Vec value) { *reinterpret_cast<LooseVec *>(to) = value; }
NEUROSQL_INLINE Wide widen(const Vec &value) {
    const HalfVec *halves = reinterpret_cast<const HalfVec *>(&value);
    return {__builtin_convertvector(halves[0], Doubles), __builtin_convertvector(halves[1], Doubles)};
}
NEUROSQL_INLINE void narrow(Wide value, Vec *to) {
    HalfVec *halves = reinterpret_cast<HalfVec *>(to);
    halves[0] = __builtin_convertvector(value.low, HalfVec);
    halves[1] = __builtin_convertvector(value.high, HalfVec);
}
NEUROSQL_INLINE Wide square(Wide value) { return {value.low * value.low, value.high * value.high}; }
NEUROSQL_INLINE Vec absolute(Vec value) { return (Vec)((Bits)value & 0x7fffffff); }
NEUROSQL_INLINE Vec between(Vec value, Vec low, Vec high) {
    value = value < low ? low : value;
    return high < value ? high : value;
}
// For values that are not negative; rounding errors below zero give zero.
NEUROSQL_INLINE Vec square_root(Vec value) {
    for (int lane = 0; lane < LANES; ++lane) value[lane] = value[lane] > 0 ? __builtin_sqrtf(value[lane]) : 0.0f;
    return value;
}
// sum += term, and rest += what rounding loses of it: a sum of many terms of one size would drift otherwise.
template <class T> NEUROSQL_INLINE void add_exactly(T &sum, T &rest, T term) {
    const T total = sum + term, added = total - sum;
    rest += (sum - (total - added)) + (term - added);
    sum = total;
}
NEUROSQL_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
NEUROSQL_INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

NEUROSQL_INLINE float sum_of_lanes(Vec value) {
    float part[LANES];
    store(part, value);
    for (int half = LANES / 2; half; half /= 2)
        for (int lane = 0; lane < half; ++lane) part[lane] += part[lane + half];
    return part[0];
}

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define NEUROSQL_SHUFFLE 1
#endif
#endif

#ifdef NEUROSQL_SHUFFLE
template <int... J> struct Indices {};
template <int Count, int... J> struct Counted : Counted<Count - 1, Count - 1, J...> {};
template <int... J> struct Counted<0, J...> {
    typedef Indices<J...> type;
};

// Swaps the upper-right and lower-left quarters of each square of 2 Distance rows and columns. Doing so for every
// distance transposes the square.
template <int Distance, int... J> NEUROSQL_INLINE void swap_quarters(Vec &a, Vec &b, Indices<J...>) {
    const Vec upper = __builtin_shufflevector(a, b, ((J & Distance) ? LANES + J - Distance : J)...);
    b = __builtin_shufflevector(a, b, ((J & Distance) ? LANES + J : J + Distance)...);
    a = upper;
}

template <int Distance> NEUROSQL_INLINE void transpose(Vec *square) {
    NEUROSQL_UNROLL
    for (int i = 0; i < LANES; ++i)
        if (!(i & Distance)) swap_quarters<Distance>(square[i], square[i + Distance], Counted<LANES>::type{});
    if constexpr (Distance > 1) transpose<Distance / 2>(square);
}

NEUROSQL_INLINE void transpose(Vec *square) { transpose<LANES / 2>(square); }
#else
NEUROSQL_INLINE void transpose(Vec *square) {
    for (int i = 0; i < LANES; ++i)
        for (int j = 0; j < i; ++j) {
            const float other = square[i][j];
            square[i][j] = square[j][i];
            square[j][i] = other;
        }
}
#endif

// to[j][lane] = from[lane][j]
void rows_to_lanes(const float *const *from, int64_t count, Vec *to) {
    int64_t j = 0;
    for (; j + LANES <= count; j += LANES) {
        Vec square[LANES];
        for (int lane = 0; lane < LANES; ++lane) square[lane] = load(from[lane] + j);
        transpose(square);
        for (int i = 0; i < LANES; ++i) to[j + i] = square[i];
    }
    for (; j < count; ++j)
        for (int lane = 0; lane < LANES; ++lane) to[j][lane] = from[lane][j];
}

// to[lane][j] = from[j][lane], for the first `lanes` lanes
void lanes_to_rows(const Vec *from, int64_t count, int lanes, float *to, int64_t pitch) {
    int64_t j = 0;
    for (; j + LANES <= count; j += LANES) {
        Vec square[LANES];
        for (int i = 0; i < LANES; ++i) square[i] = from[j + i];
        transpose(square);
        for (int lane = 0; lane < lanes; ++lane) store(to + lane * pitch + j, square[lane]);
    }
    for (; j < count; ++j)
        for (int lane = 0; lane < lanes; ++lane) to[lane * pitch + j] = from[j][lane];
}

}  // namespace
}  // namespace NEUROSQL_ISA
}  // namespace neurosql
