// The pairwise cost for one instruction set: compiled once for each, into the namespace that NEUROSQL_ISA names.
//
// A vector holds one value of LANES generated images, so that no step needs a shuffle: a real image's pixel is a scalar
// that multiplies a vector. Only E[xy] depends on both images; the rest of SSIM comes from statistics of each image:
//
//     SSIM = 4 (m_x m_y + C1/2) (E[x'y'] - m'_x m'_y + C2/2) / ((m_x^2 + C1 + m_y^2) (v_x + C2 + v_y))
//
// with means m, variances v and x' = x - (a constant of this image and tile). Covariances do not change under such a
// shift, but their rounding error does: E[xy] and m_x m_y are both near 1 where two images are white, and their
// difference is compared with C2 = 0.0009. With the constant near the median a flat part has x' = 0 and no error.
//
// Nothing of the standard library is used but integer types: its inline functions would be compiled with this file's
// instruction set and might be linked into code that runs without it.
#include "pairwise.h"

#include <cstddef>

#define NEUROSQL_INLINE inline __attribute__((always_inline))
#define NEUROSQL_TEXT_(name) #name
#define NEUROSQL_TEXT(name) NEUROSQL_TEXT_(name)
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

// Outputs that one pass of the filter keeps in registers, across and down; also the width of a strip. A ring of rows
// holds what a block of outputs needs: BLOCK + MAX_WINDOW - 1 rows.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int BLOCK = 9;
constexpr int RING = 32;
#else
constexpr int BLOCK = 6;
constexpr int RING = 16;
#endif
static_assert(RING >= BLOCK + MAX_WINDOW - 1 && (RING & (RING - 1)) == 0, "the ring holds a block and wraps by a mask");

// Quotients that are added as one fraction before they are divided. The product of three denominators stays within a
// float for pixels up to about 1000.
constexpr int SHARED = 3;

// Width of a strip of signals, which have one row only.
constexpr int SIGNAL_BLOCK = 64;

constexpr float C1 = 0.01f * 0.01f;
constexpr float C2 = 0.03f * 0.03f;

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
NEUROSQL_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
NEUROSQL_INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

NEUROSQL_INLINE float sum_of_lanes(Vec value) {
    float part[LANES];
    store(part, value);
    for (int half = LANES / 2; half; half /= 2)
        for (int lane = 0; lane < half; ++lane) part[lane] += part[lane + half];
    return part[0];
}

// Pieces of the caller's scratch memory. Without memory it only counts.
struct Scratch {
    char *base;
    int64_t used = 0;

    template <class T> T *take(int64_t count) {
        T *piece = base ? reinterpret_cast<T *>(base + used) : nullptr;
        used += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
        return piece;
    }
};

// A strip of columns of one channel: as many columns of windows as one pass of the filter takes.
struct Tile {
    int64_t channel;
    int64_t first_column;
    int64_t width;      // columns of pixels
    int64_t positions;  // columns of windows
    int64_t rows;       // depth * height
    int64_t all_positions;

    int64_t pixels() const { return rows * width; }
    // In vectors or floats: pixels, then four statistics a position, or two and the image's offset.
    int64_t x_size() const { return pixels() + 4 * all_positions; }
    int64_t y_size() const { return pixels() + 2 * all_positions + 1; }
};

bool is_plane(const Pairwise &problem) { return problem.depth.length == 1 && problem.height.length > 1; }

int64_t strip_width(const Pairwise &problem) {
    return problem.depth.length * problem.height.length == 1 ? SIGNAL_BLOCK : BLOCK;
}

int64_t strips(const Pairwise &problem) {
    return (problem.width.positions + strip_width(problem) - 1) / strip_width(problem);
}

int64_t tile_count(const Pairwise &problem) { return problem.channels * strips(problem); }

// Tile 0 is as large as any.
Tile tile_at(const Pairwise &problem, int64_t index) {
    const int64_t first = index % strips(problem) * strip_width(problem);
    Tile tile;
    tile.channel = index / strips(problem);
    tile.first_column = first * problem.width.stride;
    tile.positions = smaller(strip_width(problem), problem.width.positions - first);
    tile.width = (tile.positions - 1) * problem.width.stride + problem.width.window;
    tile.rows = problem.depth.length * problem.height.length;
    tile.all_positions = problem.depth.positions * problem.height.positions * tile.positions;
    return tile;
}

// Between one image after another (rows of floats) and one value of LANES images (vectors).

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

// Swaps the upper-right and lower-left quarter of each square of 2 Distance rows and columns: done for every distance,
// that transposes.
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

// Statistics of LANES images.

// About the median of each lane, from pixels spread over the tile. Any value is right (see the top of this file).
Vec typical_value(const Vec *pixels, int64_t count) {
    constexpr int SAMPLES = 31;
    Vec sorted[SAMPLES];
    for (int s = 0; s < SAMPLES; ++s) {
        Vec value = pixels[(2 * s + 1) * count / (2 * SAMPLES)];
        for (int i = 0; i < s; ++i) {
            const Vec low = sorted[i] < value ? sorted[i] : value;
            value = sorted[i] < value ? value : sorted[i];
            sorted[i] = low;
        }
        sorted[s] = value;
    }
    return sorted[SAMPLES / 2];
}

struct Statistics {
    double taps[MAX_WINDOW];
    Wide *row, *row_squares;  // one row of the tile in double: the variance is a small difference
    Wide *means, *squares, *spare;
    Vec *centred_means, *variances;
    Vec offset;
};

NEUROSQL_INLINE Wide weighted_sum(const Wide *values, int64_t pitch, int window, const double *taps) {
    Doubles low = values[0].low * taps[0], high = values[0].high * taps[0];
    for (int k = 1; k < window; ++k) {
        low += values[k * pitch].low * taps[k];
        high += values[k * pitch].high * taps[k];
    }
    return {low, high};
}

// Window means along the width, of the pixels and of their squares.
void smooth_rows(const Pairwise &problem, const Tile &tile, const Vec *pixels, Statistics &work) {
    Wide *means = work.means, *squares = work.squares;
    for (int64_t r = 0; r < tile.rows; ++r, pixels += tile.width) {
        for (int64_t c = 0; c < tile.width; ++c) {
            work.row[c] = widen(pixels[c]);
            work.row_squares[c] = square(work.row[c]);
        }
        for (int64_t c = 0; c < tile.positions; ++c) {
            const int64_t first = c * problem.width.stride;
            *means++ = weighted_sum(work.row + first, 1, problem.width.window, work.taps);
            *squares++ = weighted_sum(work.row_squares + first, 1, problem.width.window, work.taps);
        }
    }
}

// Window means along another axis, for all that lies `inner` apart on it; exchanges `values` and `spare`.
void smooth_axis(const Axis &axis, int64_t outer, int64_t inner, const double *taps, Wide *&values, Wide *&spare) {
    Wide *to = spare;
    for (int64_t o = 0; o < outer; ++o)
        for (int64_t p = 0; p < axis.positions; ++p) {
            const Wide *first = values + (o * axis.length + p * axis.stride) * inner;
            for (int64_t i = 0; i < inner; ++i) *to++ = weighted_sum(first + i, inner, axis.window, taps);
        }
    spare = values;
    values = to - outer * axis.positions * inner;
}

// Takes each lane's offset from its pixels and finds means and variances of what is left.
void find_statistics(const Pairwise &problem, const Tile &tile, Vec *pixels, Statistics &work) {
    work.offset = typical_value(pixels, tile.pixels());
    for (int64_t p = 0; p < tile.pixels(); ++p) pixels[p] -= work.offset;
    smooth_rows(problem, tile, pixels, work);
    const Axis &deep = problem.depth, &down = problem.height;
    if (down.length > 1) {
        smooth_axis(down, deep.length, tile.positions, work.taps, work.means, work.spare);
        smooth_axis(down, deep.length, tile.positions, work.taps, work.squares, work.spare);
    }
    if (deep.length > 1) {
        smooth_axis(deep, 1, down.positions * tile.positions, work.taps, work.means, work.spare);
        smooth_axis(deep, 1, down.positions * tile.positions, work.taps, work.squares, work.spare);
    }
    for (int64_t p = 0; p < tile.all_positions; ++p) {
        const Wide mean_square = square(work.means[p]);
        narrow(work.means[p], work.centred_means + p);
        narrow({work.squares[p].low - mean_square.low, work.squares[p].high - mean_square.high}, work.variances + p);
    }
}

struct Workspace {
    Statistics statistics;
    Vec *x;  // one tile of LANES images
    Vec *y;
    Vec *products;
    Vec *rows;
    Vec *planes;
};

Workspace workspace(const Pairwise &problem, Scratch &scratch) {
    const Tile tile = tile_at(problem, 0);
    Workspace work;
    Statistics &statistics = work.statistics;
    double total = 0;
    for (int k = 0; k < problem.width.window; ++k) total += problem.taps[k];
    for (int k = 0; k < problem.width.window; ++k) statistics.taps[k] = problem.taps[k] / total;
    statistics.row = scratch.take<Wide>(tile.width);
    statistics.row_squares = scratch.take<Wide>(tile.width);
    statistics.means = scratch.take<Wide>(tile.rows * tile.positions);
    statistics.squares = scratch.take<Wide>(tile.rows * tile.positions);
    statistics.spare = scratch.take<Wide>(tile.rows * tile.positions);
    statistics.centred_means = scratch.take<Vec>(tile.all_positions);
    statistics.variances = scratch.take<Vec>(tile.all_positions);
    work.x = scratch.take<Vec>(tile.x_size());
    work.y = scratch.take<Vec>(tile.y_size());
    work.products = scratch.take<Vec>(tile.width);
    work.rows = scratch.take<Vec>(problem.height.length * tile.positions);
    work.planes = scratch.take<Vec>(problem.depth.window * problem.height.positions * tile.positions);
    return work;
}

// The tile's pixels of images [first, last), at most LANES; lanes without an image repeat the last one.
void gather(const Pairwise &problem, const Tile &tile, const float *images, int64_t first, int64_t last, Vec *pixels) {
    const float *at[LANES];
    for (int lane = 0; lane < LANES; ++lane)
        at[lane] = images + smaller(first + lane, last - 1) * problem.pixels() + tile.channel * problem.plane() +
                   tile.first_column;
    for (int64_t row = 0; row < tile.rows; ++row) {
        rows_to_lanes(at, tile.width, pixels + row * tile.width);
        for (int lane = 0; lane < LANES; ++lane) at[lane] += problem.width.length;
    }
}

// A window of one tap has no covariance: each pixel is its own mean. For x' = 0 that comes out without rounding.
NEUROSQL_INLINE bool is_own_mean(const Pairwise &problem) { return problem.width.window == 1; }

// work.x = m', m, m^2 + C1, v + C2 of each position
void prepare_x(const Pairwise &problem, const Tile &tile, int64_t first, int64_t last, Workspace &work) {
    gather(problem, tile, problem.x, first, last, work.x);
    find_statistics(problem, tile, work.x, work.statistics);
    Vec *at = work.x;
    for (int64_t p = 0; p < tile.all_positions; ++p, at += 4) {
        const Vec centred = work.statistics.centred_means[p], mean = centred + work.statistics.offset;
        at[0] = is_own_mean(problem) ? zero() : centred;
        at[1] = mean;
        at[2] = mean * mean + C1;
        at[3] = work.statistics.variances[p] + C2;
    }
}

// work.y = pixels y', then m', v of each position, then the offset
void prepare_y(const Pairwise &problem, const Tile &tile, int64_t first, int64_t last, Workspace &work) {
    gather(problem, tile, problem.y, first, last, work.y);
    find_statistics(problem, tile, work.y, work.statistics);
    Vec *at = work.y + tile.pixels();
    for (int64_t p = 0; p < tile.all_positions; ++p, at += 2) {
        at[0] = work.statistics.centred_means[p];
        at[1] = work.statistics.variances[p];
    }
    *at = work.statistics.offset;
}

// SSIM of one tile. X is the type of a real image's values: float, for one image against LANES others; or Vec, for
// LANES pairs.

struct Fraction {
    Vec top, bottom;
};

NEUROSQL_INLINE Fraction sum_of(Fraction a, Fraction b) {
    return {a.top * b.bottom + b.top * a.bottom, a.bottom * b.bottom};
}

// A quarter of SSIM at one position from E[x'y'].
template <class X> NEUROSQL_INLINE Fraction quarter_ssim(Vec product_mean, const X *x, const Vec *y, Vec offset) {
    const Vec y_mean = y[0] + offset;
    const Vec luminance = x[1] * y_mean + C1 / 2;
    const Vec covariance = product_mean - x[0] * y[0];
    return {luminance * covariance, (y_mean * y_mean + x[2]) * (y[1] + x[3])};
}

// Each window is symmetric: pairs of values that share a tap are added first. `start` is where the sum begins.
template <int Half> NEUROSQL_INLINE Vec weighted(const Vec *values, const Vec *taps, Vec start) {
    Vec sum = start + taps[Half] * values[Half];
    NEUROSQL_UNROLL
    for (int k = 0; k < Half; ++k) sum += taps[k] * (values[k] + values[2 * Half - k]);
    return sum;
}

// Count neighbouring window means of one row of x'y'.
template <int Half, int Count, class X>
NEUROSQL_INLINE void smooth_across(const X *x, const Vec *y, const Vec *taps, Vec *to) {
    Vec product[Count + 2 * Half];
    NEUROSQL_UNROLL
    for (int k = 0; k < Count + 2 * Half; ++k) product[k] = y[k] * x[k];
    NEUROSQL_UNROLL
    for (int o = 0; o < Count; ++o) to[o] = weighted<Half>(product + o, taps, zero());
}

// A tile of pictures, as its parts see it.
template <class X> struct Plane {
    const X *x_pixels, *x_statistics;
    const Vec *y_pixels, *y_statistics;
    Vec offset;
    int width, positions;
};

// Sum of a quarter of SSIM over Rows rows of positions, from `row` on; the rows that they need are in the ring.
template <int Half, int Rows, class X>
NEUROSQL_INLINE Vec sum_down(const Plane<X> &plane, const Vec (*ring)[BLOCK], int64_t row, int64_t first_pixel_row,
                             const Vec *taps) {
    constexpr int GROUPS = (Rows + SHARED - 1) / SHARED;
    const Vec *line[Rows + 2 * Half];
    for (int k = 0; k < Rows + 2 * Half; ++k) line[k] = ring[(first_pixel_row + k) & (RING - 1)];
    // Few numbers to one sum: a long sum of nearly equal numbers drifts.
    Vec sums[GROUPS] = {};
    for (int c = 0; c < plane.positions; ++c) {
        Vec column[Rows + 2 * Half];
        NEUROSQL_UNROLL
        for (int k = 0; k < Rows + 2 * Half; ++k) column[k] = line[k][c];
        NEUROSQL_UNROLL
        for (int group = 0; group < GROUPS; ++group) {
            Fraction fraction;
            NEUROSQL_UNROLL
            for (int s = 0; s < SHARED; ++s) {
                const int o = group * SHARED + s;
                if (o >= Rows) break;
                const int64_t p = (row + o) * plane.positions + c;
                const Vec mean = weighted<Half>(column + o, taps, broadcast(C2 / 2));
                const Fraction one =
                    quarter_ssim(mean, plane.x_statistics + 4 * p, plane.y_statistics + 2 * p, plane.offset);
                fraction = s ? sum_of(fraction, one) : one;
            }
            sums[group] += fraction.top / fraction.bottom;
        }
    }
    NEUROSQL_UNROLL
    for (int group = 1; group < GROUPS; ++group) sums[0] += sums[group];
    return sums[0];
}

template <int Half> struct Taps {
    Vec value[Half + 1];
    explicit NEUROSQL_INLINE Taps(const Pairwise &problem) {
        for (int k = 0; k <= Half; ++k) value[k] = broadcast(problem.taps[k]);
    }
};

// Row by row: the row's products smoothed across go into the ring; whenever a block of rows is complete it is smoothed
// down and consumed. The ring stays in the first-level cache.
template <int Half, class X> NEUROSQL_INLINE Vec sum_plane(const Pairwise &problem, const Plane<X> &plane) {
    const Taps<Half> taps(problem);
    Vec ring[RING][BLOCK];
    Vec total = zero();
    int64_t done = 0;
    for (int64_t r = 0; r < problem.height.length; ++r) {
        const X *x = plane.x_pixels + r * plane.width;
        const Vec *y = plane.y_pixels + r * plane.width;
        Vec *to = ring[r & (RING - 1)];
        if (plane.positions == BLOCK) {
            smooth_across<Half, BLOCK>(x, y, taps.value, to);
        } else {
            int c = 0;
            for (; c + 2 <= plane.positions; c += 2) smooth_across<Half, 2>(x + c, y + c, taps.value, to + c);
            for (; c < plane.positions; ++c) smooth_across<Half, 1>(x + c, y + c, taps.value, to + c);
        }
        if (r == done + BLOCK - 1 + 2 * Half) {
            total += sum_down<Half, BLOCK>(plane, ring, done, done, taps.value);
            done += BLOCK;
        }
    }
    for (; done + 2 <= problem.height.positions; done += 2)
        total += sum_down<Half, 2>(plane, ring, done, done, taps.value);
    for (; done < problem.height.positions; ++done) total += sum_down<Half, 1>(plane, ring, done, done, taps.value);
    return total;
}

// The same for windows on a stride, one row of them at a time.
template <int Half, class X>
NEUROSQL_INLINE Vec sum_strided_plane(const Pairwise &problem, const Plane<X> &plane, Vec *products) {
    const Taps<Half> taps(problem);
    const int64_t stride = problem.width.stride;
    Vec ring[RING][BLOCK];
    Vec total = zero();
    int64_t done = 0;
    for (int64_t r = 0; done < problem.height.positions; ++r) {
        const int64_t first = done * stride;
        if (r < first) continue;  // rows between the windows
        const X *x = plane.x_pixels + r * plane.width;
        const Vec *y = plane.y_pixels + r * plane.width;
        for (int c = 0; c < plane.width; ++c) products[c] = y[c] * x[c];
        Vec *to = ring[r & (RING - 1)];
        for (int c = 0; c < plane.positions; ++c) to[c] = weighted<Half>(products + c * stride, taps.value, zero());
        if (r == first + 2 * Half) total += sum_down<Half, 1>(plane, ring, done++, first, taps.value);
    }
    return total;
}

// Window mean with taps that lie `pitch` apart.
NEUROSQL_INLINE Vec weighted_apart(const Vec *values, int64_t pitch, int window, const float *taps) {
    Vec sum = values[0] * taps[0];
    for (int k = 1; k < window; ++k) sum += values[k * pitch] * taps[k];
    return sum;
}

// Signals and volumes, for any window on each axis: plane by plane, then along the depth.
template <class X>
Vec sum_volume(const Pairwise &problem, const Tile &tile, const X *x, const Vec *y, Workspace &work) {
    static const float ONE[1] = {1.0f};
    const Axis &deep = problem.depth, &down = problem.height, &across = problem.width;
    const float *deep_taps = deep.window > 1 ? problem.taps : ONE;
    const float *down_taps = down.window > 1 ? problem.taps : ONE;
    const X *x_statistics = x + tile.pixels();
    const Vec *y_statistics = y + tile.pixels();
    const Vec offset = y[tile.y_size() - 1];
    const int64_t plane_positions = down.positions * tile.positions;
    Vec total = zero();
    int64_t position = 0;
    for (int64_t d = 0; d < deep.length; ++d) {
        for (int64_t r = 0; r < down.length; ++r, x += tile.width, y += tile.width) {
            for (int64_t c = 0; c < tile.width; ++c) work.products[c] = y[c] * x[c];
            for (int64_t c = 0; c < tile.positions; ++c)
                work.rows[r * tile.positions + c] =
                    weighted_apart(work.products + c * across.stride, 1, across.window, problem.taps);
        }
        // Planes that a window needs are kept at depth modulo the window, so their order rotates with d.
        Vec *plane = work.planes + d % deep.window * plane_positions;
        for (int64_t r = 0; r < down.positions; ++r)
            for (int64_t c = 0; c < tile.positions; ++c)
                plane[r * tile.positions + c] = weighted_apart(work.rows + r * down.stride * tile.positions + c,
                                                               tile.positions, down.window, down_taps);
        const int64_t first = d - deep.window + 1;
        if (first < 0 || first % deep.stride) continue;
        Vec sum = zero();
        for (int64_t p = 0; p < plane_positions; ++p, ++position) {
            Vec mean = broadcast(C2 / 2);
            for (int k = 0; k < deep.window; ++k)
                mean += work.planes[(first + k) % deep.window * plane_positions + p] * deep_taps[k];
            const Fraction ssim = quarter_ssim(mean, x_statistics + 4 * position, y_statistics + 2 * position, offset);
            sum += ssim.top / ssim.bottom;
        }
        total += sum;
    }
    return total;
}

template <int Half, class X>
__attribute__((noinline)) Vec sum_tile(const Pairwise &problem, const Tile &tile, const X *x, const Vec *y,
                                       Workspace &work) {
    const Plane<X> plane{x,
                         x + tile.pixels(),
                         y,
                         y + tile.pixels(),
                         y[tile.y_size() - 1],
                         static_cast<int>(tile.width),
                         static_cast<int>(tile.positions)};
    if (problem.width.stride > 1) return sum_strided_plane<Half>(problem, plane, work.products);
    return sum_plane<Half>(problem, plane);
}

template <class X> using TileSum = Vec (*)(const Pairwise &, const Tile &, const X *, const Vec *, Workspace &);

template <class X> TileSum<X> tile_sum(const Pairwise &problem) {
    static const TileSum<X> by_half_window[] = {sum_tile<0, X>, sum_tile<1, X>, sum_tile<2, X>,
                                                sum_tile<3, X>, sum_tile<4, X>, sum_tile<5, X>};
    return is_plane(problem) ? by_half_window[problem.width.window / 2] : sum_volume<X>;
}

// The tile's share of ssim_weight (1 - SSIM), from the sum of a quarter of SSIM.
NEUROSQL_INLINE Vec share(const Pairwise &problem, const Tile &tile, Vec quarters) {
    const double weight = problem.ssim_weight / static_cast<double>(problem.positions());
    const float most = static_cast<float>(weight * static_cast<double>(tile.all_positions));
    return most - quarters * static_cast<float>(4 * weight);
}

// mean|x - y|. Here a vector holds neighbouring pixels: nothing has to be rearranged.

constexpr int64_t L1_STEP = 16;          // vectors that are added to one sum before it goes to the next
constexpr int64_t L1_CHUNK = 64 * LANES;  // pixels of an image that are taken at a time
constexpr int64_t L1_COLUMNS = 64;        // generated images whose chunks stay in the cache
constexpr int L1_ROWS = LANES == 16 ? 4 : 2;  // real images at a time against four generated ones: in registers

NEUROSQL_INLINE Vec load_some(const float *from, int64_t count) {
    float part[LANES] = {};
    for (int64_t i = 0; i < count; ++i) part[i] = from[i];
    return load(part);
}

// sums[i][k] = sum|x_i - y_k| over one chunk
template <int Rows, int Columns>
NEUROSQL_INLINE void l1_chunk(const float *x, const float *y, int64_t pitch, int64_t count, float (*sums)[Columns]) {
    Vec total[Rows][Columns] = {};
    for (int64_t begin = 0; begin < count; begin += L1_STEP * LANES) {
        const int64_t end = smaller(begin + L1_STEP * LANES, count);
        Vec sum[Rows][Columns] = {};
        int64_t p = begin;
        for (; p + LANES <= end; p += LANES) {
            Vec xs[Rows];
            NEUROSQL_UNROLL
            for (int i = 0; i < Rows; ++i) xs[i] = load(x + i * pitch + p);
            NEUROSQL_UNROLL
            for (int k = 0; k < Columns; ++k) {
                const Vec value = load(y + k * pitch + p);
                NEUROSQL_UNROLL
                for (int i = 0; i < Rows; ++i) sum[i][k] += absolute(value - xs[i]);
            }
        }
        NEUROSQL_UNROLL
        for (int i = 0; i < Rows; ++i)
            NEUROSQL_UNROLL
            for (int k = 0; k < Columns; ++k) {
                const float *x_rest = x + i * pitch + p, *y_rest = y + k * pitch + p;
                if (p < end) sum[i][k] += absolute(load_some(y_rest, end - p) - load_some(x_rest, end - p));
                total[i][k] += sum[i][k];
            }
    }
    for (int i = 0; i < Rows; ++i)
        for (int k = 0; k < Columns; ++k) sums[i][k] = sum_of_lanes(total[i][k]);
}

template <int Rows, int Columns>
__attribute__((noinline)) void add_l1(const Pairwise &problem, int64_t row, int64_t column, int64_t begin, float *out,
                                      int64_t pitch) {
    const float scale = static_cast<float>(problem.l1_weight / static_cast<double>(problem.pixels()));
    const int64_t count = smaller(L1_CHUNK, problem.pixels() - begin);
    float sums[Rows][Columns];
    l1_chunk<Rows, Columns>(problem.x + row * problem.pixels() + begin, problem.y + column * problem.pixels() + begin,
                            problem.pixels(), count, sums);
    for (int i = 0; i < Rows; ++i)
        for (int k = 0; k < Columns; ++k) out[i * pitch + k] += sums[i][k] * scale;
}

// out += l1_weight sum|x - y| over a chunk, for Rows rows and a range of columns
template <int Rows>
void l1_rows(const Pairwise &problem, int64_t row, int64_t first_column, int64_t last_column, int64_t begin,
             float *out) {
    int64_t k = first_column;
    for (; k + 4 <= last_column; k += 4)
        add_l1<Rows, 4>(problem, row, k, begin, out + row * problem.m + k, problem.m);
    for (; k < last_column; ++k) add_l1<Rows, 1>(problem, row, k, begin, out + row * problem.m + k, problem.m);
}

void l1_block(const Pairwise &problem, int64_t first_row, int64_t last_row, int64_t first_column, int64_t last_column,
              float *out) {
    for (int64_t k = first_column; k < last_column; k += L1_COLUMNS) {
        const int64_t end = smaller(k + L1_COLUMNS, last_column);
        for (int64_t begin = 0; begin < problem.pixels(); begin += L1_CHUNK) {
            int64_t i = first_row;
            for (; i + L1_ROWS <= last_row; i += L1_ROWS) l1_rows<L1_ROWS>(problem, i, k, end, begin, out);
            for (; i < last_row; ++i) l1_rows<1>(problem, i, k, end, begin, out);
        }
    }
}

// Blocks of the matrix.

int64_t block_rows(const Pairwise &problem) {
    constexpr int64_t CACHE = 4 << 20, FEWEST = 64, MOST = 1024;
    const int64_t fitting = CACHE / (tile_at(problem, 0).x_size() * static_cast<int64_t>(sizeof(float)));
    return larger(FEWEST, smaller(fitting, MOST)) / LANES * LANES;
}

int64_t block_scratch(const Pairwise &problem, int64_t rows) {
    Scratch scratch{nullptr};
    workspace(problem, scratch);
    scratch.take<float>(rows * tile_at(problem, 0).x_size());
    return scratch.used;
}

// to = the tile's pixels of real image i, less its offset
void copy_pixels(const Pairwise &problem, const Tile &tile, int64_t i, float offset, float *to) {
    const float *from = problem.x + i * problem.pixels() + tile.channel * problem.plane() + tile.first_column;
    const float keep = is_own_mean(problem) ? 0.0f : 1.0f;
    for (int64_t row = 0; row < tile.rows; ++row, from += problem.width.length, to += tile.width)
        for (int64_t c = 0; c < tile.width; ++c) to[c] = (from[c] - offset) * keep;
}

// Records of the real images [first, last), one after another: pixels x', then the statistics.
void x_block(const Pairwise &problem, const Tile &tile, int64_t first, int64_t last, float *records, Workspace &work) {
    for (int64_t i = first; i < last; i += LANES) {
        prepare_x(problem, tile, i, last, work);
        const int lanes = static_cast<int>(smaller(LANES, last - i));
        float *to = records + (i - first) * tile.x_size();
        for (int lane = 0; lane < lanes; ++lane)
            copy_pixels(problem, tile, i + lane, work.statistics.offset[lane], to + lane * tile.x_size());
        lanes_to_rows(work.x, 4 * tile.all_positions, lanes, to + tile.pixels(), tile.x_size());
    }
}

void ssim_block(const Pairwise &problem, int64_t first_row, int64_t last_row, int64_t first_column,
                int64_t last_column, float *out, Scratch scratch) {
    Workspace work = workspace(problem, scratch);
    float *records = scratch.take<float>((last_row - first_row) * tile_at(problem, 0).x_size());
    const TileSum<float> sum = tile_sum<float>(problem);
    for (int64_t t = 0; t < tile_count(problem); ++t) {
        const Tile tile = tile_at(problem, t);
        x_block(problem, tile, first_row, last_row, records, work);
        for (int64_t k = first_column; k < last_column; k += LANES) {
            prepare_y(problem, tile, k, last_column, work);
            const int lanes = static_cast<int>(smaller(LANES, last_column - k));
            for (int64_t i = first_row; i < last_row; ++i) {
                const float *x = records + (i - first_row) * tile.x_size();
                const Vec cost = share(problem, tile, sum(problem, tile, x, work.y, work));
                float *to = out + i * problem.m + k;
                if (lanes == LANES) {
                    store(to, load(to) + cost);
                } else {
                    for (int lane = 0; lane < lanes; ++lane) to[lane] += cost[lane];
                }
            }
        }
    }
}

void block(const Pairwise &problem, int64_t first_row, int64_t last_row, int64_t first_column, int64_t last_column,
           float *out, void *scratch) {
    for (int64_t i = first_row; i < last_row; ++i)
        for (int64_t k = first_column; k < last_column; ++k) out[i * problem.m + k] = 0;
    if (problem.l1_weight != 0) l1_block(problem, first_row, last_row, first_column, last_column, out);
    if (problem.ssim_weight != 0)
        ssim_block(problem, first_row, last_row, first_column, last_column, out, Scratch{static_cast<char *>(scratch)});
}

// Chosen pairs.

int64_t x_record(const Pairwise &problem) { return tile_at(problem, 0).x_size(); }
int64_t y_record(const Pairwise &problem) { return tile_at(problem, 0).y_size(); }

int64_t pairs_scratch(const Pairwise &problem) {
    Scratch scratch{nullptr};
    workspace(problem, scratch);
    return scratch.used;
}

void x_records(const Pairwise &problem, int64_t t, int64_t first, int64_t last, float *records, void *memory) {
    Scratch scratch{static_cast<char *>(memory)};
    Workspace work = workspace(problem, scratch);
    const Tile tile = tile_at(problem, t);
    x_block(problem, tile, first, last, records + first * tile.x_size(), work);
}

void y_records(const Pairwise &problem, int64_t t, int64_t first, int64_t last, float *records, void *memory) {
    Scratch scratch{static_cast<char *>(memory)};
    Workspace work = workspace(problem, scratch);
    const Tile tile = tile_at(problem, t);
    for (int64_t k = first; k < last; k += LANES) {
        prepare_y(problem, tile, k, last, work);
        lanes_to_rows(work.y, tile.y_size(), static_cast<int>(smaller(LANES, last - k)), records + k * tile.y_size(),
                      tile.y_size());
    }
}

void pairs_l1(const Pairwise &problem, const int64_t *rows, const int64_t *columns, const int64_t *order, int64_t first,
              int64_t last, float *out) {
    for (int64_t p = first; p < last; ++p) {
        out[order[p]] = 0;
        if (problem.l1_weight == 0) continue;
        for (int64_t begin = 0; begin < problem.pixels(); begin += L1_CHUNK)
            add_l1<1, 1>(problem, rows[order[p]], columns[order[p]], begin, out + order[p], 1);
    }
}

// LANES pairs at a time. Where they all have one real image, its record is used as it is.
void pairs_tile(const Pairwise &problem, int64_t t, const float *x_records, const float *y_records, const int64_t *rows,
                const int64_t *columns, const int64_t *order, int64_t first, int64_t last, float *out, void *memory) {
    Scratch scratch{static_cast<char *>(memory)};
    Workspace work = workspace(problem, scratch);
    const Tile tile = tile_at(problem, t);
    const TileSum<float> sum_one = tile_sum<float>(problem);
    const TileSum<Vec> sum_each = tile_sum<Vec>(problem);
    for (int64_t p = first; p < last; p += LANES) {
        const int lanes = static_cast<int>(smaller(LANES, last - p));
        const float *x[LANES], *y[LANES];
        bool one_row = true;
        for (int lane = 0; lane < LANES; ++lane) {
            const int64_t pair = order[smaller(p + lane, last - 1)];
            x[lane] = x_records + rows[pair] * tile.x_size();
            y[lane] = y_records + columns[pair] * tile.y_size();
            one_row = one_row && x[lane] == x[0];
        }
        rows_to_lanes(y, tile.y_size(), work.y);
        Vec quarters;
        if (one_row) {
            quarters = sum_one(problem, tile, x[0], work.y, work);
        } else {
            rows_to_lanes(x, tile.x_size(), work.x);
            quarters = sum_each(problem, tile, work.x, work.y, work);
        }
        const Vec cost = share(problem, tile, quarters);
        for (int lane = 0; lane < lanes; ++lane) out[order[p + lane]] += cost[lane];
    }
}

}  // namespace

extern const Kernel kernel;
const Kernel kernel = {NEUROSQL_TEXT(NEUROSQL_ISA),
                       LANES,
                       block_rows,
                       block_scratch,
                       block,
                       tile_count,
                       x_record,
                       y_record,
                       pairs_scratch,
                       x_records,
                       y_records,
                       pairs_l1,
                       pairs_tile};

}  // namespace NEUROSQL_ISA
}  // namespace neurosql
