// The pairwise cost for one instruction set: compiled once for each, into the namespace that NEUROSQL_ISA names.
//
// A vector holds one value of LANES generated images, so that no step needs a shuffle: a real image's pixel is a scalar
// that multiplies a vector. Only E[xy] depends on both images; the rest of SSIM comes from statistics of each image:
//
//     SSIM = 4 (m_x m_y + C1/2) (E[x'y'] - m'_x m'_y + C2/2) / ((m_x^2 + C1 + m_y^2) (v_x + C2 + v_y))
//
// with means m, variances v and x' = x - (a constant of this image and tile). Covariances do not change under such a
// shift, but their rounding error does: E[xy] and m_x m_y are both near 1 where two images are white, and their
// difference is compared with C2 = 0.0009. With the constant near the median most flat parts have x' = 0 and no error.
// In the others the covariance is kept within the bound that the variances, which are found in double, set it. Where
// parts of little contrast lie far from the constant in both images, the pair's tile is summed in double.
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

// Rows of windows in a tile of pictures, and its width for signals, which have one row only. Small tiles stay in the
// cache and have values near their own offset; large ones share more rows between windows.
constexpr int BAND = (LANES == 16 ? 3 : 5) * BLOCK;
constexpr int SIGNAL_BLOCK = 16;

// Rounding E[x'y'] makes an error of about m'_x m'_y u / (v_x + v_y + C2) in SSIM, which is at most u times a factor of
// each image, m' / root of (v + C2/2). The root of the factor's sum of squares over a tile is the image's risk: a pair
// whose risks' product is more than this a position is summed in double. Where a window is flat there is no error.
constexpr float RISKY = 30.0f;
constexpr float FLAT = 1e-15f;

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
NEUROSQL_INLINE Vec between(Vec value, Vec low, Vec high) {
    value = value < low ? low : value;
    return high < value ? high : value;
}
// Of what is not negative; rounding errors below zero give zero.
NEUROSQL_INLINE Vec square_root(Vec value) {
    for (int lane = 0; lane < LANES; ++lane) value[lane] = value[lane] > 0 ? __builtin_sqrtf(value[lane]) : 0.0f;
    return value;
}
// sum += term, with what rounding loses of it added to `rest`: many terms of one size would drift otherwise.
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

constexpr int X_STATISTICS = 5;  // of a position: m', m, m^2 + C1, v + C2, root of v
constexpr int Y_STATISTICS = 2;  // m', root of v

// A part of one channel: as many columns of windows as one pass of the filter takes, and a band of rows of pictures or
// all of signals and volumes.
struct Tile {
    int64_t first_pixel;  // in the image
    int64_t width;        // columns of pixels
    int64_t positions;    // columns of windows
    Axis down;            // the height, as far as this tile has it
    int64_t rows;         // depth * height
    int64_t all_positions;

    int64_t pixels() const { return rows * width; }
    // In vectors or floats: pixels, statistics of each position, the rest of m' of each position, the risk; y also has
    // the offset.
    int64_t x_rests() const { return pixels() + X_STATISTICS * all_positions; }
    int64_t y_rests() const { return pixels() + Y_STATISTICS * all_positions; }
    int64_t x_risk() const { return x_rests() + all_positions; }
    int64_t y_risk() const { return y_rests() + all_positions; }
    int64_t y_offset() const { return y_risk() + 1; }
    int64_t x_size() const { return x_risk() + 1; }
    int64_t y_size() const { return y_offset() + 1; }
};

bool is_plane(const Pairwise &problem) { return problem.depth.length == 1 && problem.height.length > 1; }

int64_t strip_width(const Pairwise &problem) {
    const int64_t width = problem.depth.length * problem.height.length == 1 ? SIGNAL_BLOCK : BLOCK;
    return (width + problem.width.stride - 1) / problem.width.stride;
}

int64_t band_height(const Pairwise &problem) {
    return is_plane(problem) ? (BAND + problem.height.stride - 1) / problem.height.stride : problem.height.positions;
}

int64_t strips(const Pairwise &problem) {
    return (problem.width.positions + strip_width(problem) - 1) / strip_width(problem);
}

int64_t bands(const Pairwise &problem) {
    return (problem.height.positions + band_height(problem) - 1) / band_height(problem);
}

int64_t tile_count(const Pairwise &problem) { return problem.channels * strips(problem) * bands(problem); }

// Tile 0 is as large as any.
Tile tile_at(const Pairwise &problem, int64_t index) {
    const int64_t first = index % strips(problem) * strip_width(problem);
    const int64_t band = index / strips(problem) % bands(problem) * band_height(problem);
    const int64_t channel = index / strips(problem) / bands(problem);
    Tile tile;
    tile.positions = smaller(strip_width(problem), problem.width.positions - first);
    tile.width = (tile.positions - 1) * problem.width.stride + problem.width.window;
    tile.down = problem.height;
    tile.down.positions = smaller(band_height(problem), problem.height.positions - band);
    if (is_plane(problem))
        tile.down.length = (tile.down.positions - 1) * problem.height.stride + problem.height.window;
    tile.first_pixel = channel * problem.plane() + band * problem.height.stride * problem.width.length +
                       first * problem.width.stride;
    tile.rows = problem.depth.length * tile.down.length;
    tile.all_positions = problem.depth.positions * tile.down.positions * tile.positions;
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
    Vec *centred_means, *rests, *deviations;
    Vec risk;
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

// Window means of values that smooth_rows or the like have averaged along the width.
void smooth_other_axes(const Pairwise &problem, const Tile &tile, const double *taps, Wide *&values, Wide *&spare) {
    const Axis &deep = problem.depth, &down = tile.down;
    if (down.length > 1) smooth_axis(down, deep.length, tile.positions, taps, values, spare);
    if (deep.length > 1) smooth_axis(deep, 1, down.positions * tile.positions, taps, values, spare);
}

// Takes each lane's offset from its pixels and finds means and standard deviations of what is left.
void find_statistics(const Pairwise &problem, const Tile &tile, Vec *pixels, Statistics &work) {
    work.offset = typical_value(pixels, tile.pixels());
    for (int64_t p = 0; p < tile.pixels(); ++p) pixels[p] -= work.offset;
    smooth_rows(problem, tile, pixels, work);
    smooth_other_axes(problem, tile, work.taps, work.means, work.spare);
    smooth_other_axes(problem, tile, work.taps, work.squares, work.spare);
    work.risk = zero();
    for (int64_t p = 0; p < tile.all_positions; ++p) {
        const Wide mean_square = square(work.means[p]);
        Vec variance;
        narrow(work.means[p], work.centred_means + p);
        const Wide rounded = widen(work.centred_means[p]);
        narrow({work.means[p].low - rounded.low, work.means[p].high - rounded.high}, work.rests + p);
        narrow({work.squares[p].low - mean_square.low, work.squares[p].high - mean_square.high}, &variance);
        work.deviations[p] = square_root(variance);
        const Vec mean = work.centred_means[p];
        work.risk += variance > FLAT ? mean * mean / (variance + C2 / 2) : zero();
    }
    work.risk = square_root(work.risk);
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
    statistics.rests = scratch.take<Vec>(tile.all_positions);
    statistics.deviations = scratch.take<Vec>(tile.all_positions);
    work.x = scratch.take<Vec>(tile.x_size());
    work.y = scratch.take<Vec>(tile.y_size());
    work.products = scratch.take<Vec>(tile.width);
    work.rows = scratch.take<Vec>(tile.down.length * tile.positions);
    work.planes = scratch.take<Vec>(problem.depth.window * tile.down.positions * tile.positions);
    return work;
}

// The tile's pixels of images [first, last), at most LANES; lanes without an image repeat the last one.
void gather(const Pairwise &problem, const Tile &tile, const float *images, int64_t first, int64_t last, Vec *pixels) {
    const float *at[LANES];
    for (int lane = 0; lane < LANES; ++lane)
        at[lane] = images + smaller(first + lane, last - 1) * problem.pixels() + tile.first_pixel;
    for (int64_t row = 0; row < tile.rows; ++row) {
        rows_to_lanes(at, tile.width, pixels + row * tile.width);
        for (int lane = 0; lane < LANES; ++lane) at[lane] += problem.width.length;
    }
}

// A window of one tap has no covariance: each pixel is its own mean. For x' = 0 that comes out without rounding.
NEUROSQL_INLINE bool is_own_mean(const Pairwise &problem) { return problem.width.window == 1; }

// work.x = m', m, m^2 + C1, v + C2, root of v of each position
void prepare_x(const Pairwise &problem, const Tile &tile, int64_t first, int64_t last, Workspace &work) {
    gather(problem, tile, problem.x, first, last, work.x);
    find_statistics(problem, tile, work.x, work.statistics);
    Vec *at = work.x;
    for (int64_t p = 0; p < tile.all_positions; ++p, at += X_STATISTICS) {
        const Vec deviation = work.statistics.deviations[p];
        const Vec centred = work.statistics.centred_means[p], mean = centred + work.statistics.offset;
        at[0] = is_own_mean(problem) ? zero() : centred;
        at[1] = mean;
        at[2] = mean * mean + C1;
        at[3] = deviation * deviation + C2;
        at[4] = deviation;
    }
    for (int64_t p = 0; p < tile.all_positions; ++p) *at++ = work.statistics.rests[p];
    *at = work.statistics.risk;
}

// work.y = pixels y', then m', root of v of each position, then the offset
void prepare_y(const Pairwise &problem, const Tile &tile, int64_t first, int64_t last, Workspace &work) {
    gather(problem, tile, problem.y, first, last, work.y);
    find_statistics(problem, tile, work.y, work.statistics);
    Vec *at = work.y + tile.pixels();
    for (int64_t p = 0; p < tile.all_positions; ++p, at += Y_STATISTICS) {
        at[0] = work.statistics.centred_means[p];
        at[1] = work.statistics.deviations[p];
    }
    for (int64_t p = 0; p < tile.all_positions; ++p) *at++ = work.statistics.rests[p];
    *at++ = work.statistics.risk;
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

// A quarter of SSIM at one position from the covariance + C2/2. The covariance is at most the product of the
// deviations, which are exact: where one image is flat, nothing is left of the rounding errors.
template <class X> NEUROSQL_INLINE Fraction quarter_ssim(Vec covariance, const X *x, const Vec *y, Vec offset) {
    const Vec y_mean = y[0] + offset;
    const Vec luminance = x[1] * y_mean + C1 / 2;
    covariance = between(covariance, C2 / 2 - x[4] * y[1], C2 / 2 + x[4] * y[1]);
    return {luminance * covariance, (y_mean * y_mean + x[2]) * (y[1] * y[1] + x[3])};
}

// Each window is symmetric: pairs of values that share a tap are added first. The order of the taps is the one of least
// rounding: for a sum that grows, the smallest first; for one that starts at about the negative result, the largest.
template <int Half> NEUROSQL_INLINE Vec weighted(const Vec *values, const Vec *taps) {
    Vec sum = zero();
    NEUROSQL_UNROLL
    for (int k = 0; k < Half; ++k) sum += taps[k] * (values[k] + values[2 * Half - k]);
    return sum + taps[Half] * values[Half];
}

template <int Half> NEUROSQL_INLINE Vec weighted_from(Vec start, const Vec *values, const Vec *taps) {
    Vec sum = start + taps[Half] * values[Half];
    NEUROSQL_UNROLL
    for (int k = Half - 1; k >= 0; --k) sum += taps[k] * (values[k] + values[2 * Half - k]);
    return sum;
}

// Count neighbouring window means of one row of x'y'.
template <int Half, int Count, class X>
NEUROSQL_INLINE void smooth_across(const X *x, const Vec *y, const Vec *taps, Vec *to) {
    Vec product[Count + 2 * Half];
    NEUROSQL_UNROLL
    for (int k = 0; k < Count + 2 * Half; ++k) product[k] = y[k] * x[k];
    NEUROSQL_UNROLL
    for (int o = 0; o < Count; ++o) to[o] = weighted<Half>(product + o, taps);
}

// A tile of pictures, as its parts see it.
template <class X> struct Plane {
    const X *x_pixels, *x_statistics;
    const Vec *y_pixels, *y_statistics;
    Vec offset;
    int width, positions;
    int64_t rows, rows_of_positions;
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
                const X *x = plane.x_statistics + X_STATISTICS * p;
                const Vec *y = plane.y_statistics + Y_STATISTICS * p;
                const Vec covariance = weighted_from<Half>(C2 / 2 - y[0] * x[0], column + o, taps);
                const Fraction one = quarter_ssim(covariance, x, y, plane.offset);
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
    for (int64_t r = 0; r < plane.rows; ++r) {
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
    for (; done + 2 <= plane.rows_of_positions; done += 2)
        total += sum_down<Half, 2>(plane, ring, done, done, taps.value);
    for (; done < plane.rows_of_positions; ++done) total += sum_down<Half, 1>(plane, ring, done, done, taps.value);
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
    for (int64_t r = 0; done < plane.rows_of_positions; ++r) {
        const int64_t first = done * stride;
        if (r < first) continue;  // rows between the windows
        const X *x = plane.x_pixels + r * plane.width;
        const Vec *y = plane.y_pixels + r * plane.width;
        for (int c = 0; c < plane.width; ++c) products[c] = y[c] * x[c];
        Vec *to = ring[r & (RING - 1)];
        for (int c = 0; c < plane.positions; ++c) to[c] = weighted<Half>(products + c * stride, taps.value);
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
    const Axis &deep = problem.depth, &down = tile.down, &across = problem.width;
    const float *deep_taps = deep.window > 1 ? problem.taps : ONE;
    const float *down_taps = down.window > 1 ? problem.taps : ONE;
    const X *x_statistics = x + tile.pixels();
    const Vec *y_statistics = y + tile.pixels();
    const Vec offset = y[tile.y_offset()];
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
            const X *x_here = x_statistics + X_STATISTICS * position;
            const Vec *y_here = y_statistics + Y_STATISTICS * position;
            Vec mean = C2 / 2 - y_here[0] * x_here[0];
            for (int k = 0; k < deep.window; ++k)
                mean += work.planes[(first + k) % deep.window * plane_positions + p] * deep_taps[k];
            const Fraction ssim = quarter_ssim(mean, x_here, y_here, offset);
            sum += ssim.top / ssim.bottom;
        }
        total += sum;
    }
    return total;
}

NEUROSQL_INLINE Wide times(Wide a, float b) { return {a.low * double{b}, a.high * double{b}}; }
NEUROSQL_INLINE Wide times(Wide a, Wide b) { return {a.low * b.low, a.high * b.high}; }
NEUROSQL_INLINE Wide times(Wide a, Vec b) { return times(a, widen(b)); }
NEUROSQL_INLINE Wide exact_mean(Vec mean, Vec rest) {
    const Wide a = widen(mean), b = widen(rest);
    return {a.low + b.low, a.high + b.high};
}
NEUROSQL_INLINE Wide times_mean(Wide a, float mean, float rest) {
    const double exact = double{mean} + double{rest};
    return {a.low * exact, a.high * exact};
}
NEUROSQL_INLINE Wide times_mean(Wide a, Vec mean, Vec rest) { return times(a, exact_mean(mean, rest)); }

// The same with covariances in double, for images of any kind: slower.
template <class X>
__attribute__((noinline)) Vec sum_exactly(const Pairwise &problem, const Tile &tile, const X *x, const Vec *y,
                                          Workspace &work) {
    Statistics &statistics = work.statistics;
    Wide *to = statistics.means;
    for (int64_t r = 0; r < tile.rows; ++r) {
        for (int64_t c = 0; c < tile.width; ++c)
            statistics.row[c] = times(widen(y[r * tile.width + c]), x[r * tile.width + c]);
        for (int64_t c = 0; c < tile.positions; ++c)
            *to++ = weighted_sum(statistics.row + c * problem.width.stride, 1, problem.width.window, statistics.taps);
    }
    smooth_other_axes(problem, tile, statistics.taps, statistics.means, statistics.spare);
    const X *x_statistics = x + tile.pixels();
    const Vec *y_statistics = y + tile.pixels();
    Vec total = zero(), rest = zero();
    for (int64_t p = 0; p < tile.all_positions; ++p, x_statistics += X_STATISTICS, y_statistics += Y_STATISTICS) {
        const Wide y_mean = exact_mean(y_statistics[0], y[tile.y_rests() + p]);
        const Wide means = times_mean(y_mean, x_statistics[0], x[tile.x_rests() + p]), product = statistics.means[p];
        Vec covariance;
        narrow({product.low - means.low, product.high - means.high}, &covariance);
        const Fraction ssim = quarter_ssim(covariance + C2 / 2, x_statistics, y_statistics, y[tile.y_offset()]);
        add_exactly<Vec>(total, rest, ssim.top / ssim.bottom);
    }
    return total + rest;
}

template <int Half, class X>
__attribute__((noinline)) Vec sum_tile(const Pairwise &problem, const Tile &tile, const X *x, const Vec *y,
                                       Workspace &work) {
    const Plane<X> plane{x,
                         x + tile.pixels(),
                         y,
                         y + tile.pixels(),
                         y[tile.y_offset()],
                         static_cast<int>(tile.width),
                         static_cast<int>(tile.positions),
                         tile.down.length,
                         tile.down.positions};
    if (problem.width.stride > 1) return sum_strided_plane<Half>(problem, plane, work.products);
    return sum_plane<Half>(problem, plane);
}

template <class X> using TileSum = Vec (*)(const Pairwise &, const Tile &, const X *, const Vec *, Workspace &);

template <class X> TileSum<X> tile_sum(const Pairwise &problem) {
    static const TileSum<X> by_half_window[] = {sum_tile<0, X>, sum_tile<1, X>, sum_tile<2, X>,
                                                sum_tile<3, X>, sum_tile<4, X>, sum_tile<5, X>};
    return is_plane(problem) ? by_half_window[problem.width.window / 2] : sum_volume<X>;
}

NEUROSQL_INLINE float largest_lane(Vec value) {
    float most = value[0];
    for (int lane = 1; lane < LANES; ++lane) most = most < value[lane] ? value[lane] : most;
    return most;
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

// Costs as sums and what rounding lost of them, row by row.
struct Sums {
    float *sum;
    int64_t pitch;
    float *rest;
    int64_t rest_pitch;

    Sums at(int64_t row, int64_t column) const {
        return {sum + row * pitch + column, pitch, rest + row * rest_pitch + column, rest_pitch};
    }
};

template <int Rows, int Columns>
__attribute__((noinline)) void add_l1(const Pairwise &problem, int64_t row, int64_t column, int64_t begin, Sums out) {
    const float scale = static_cast<float>(problem.l1_weight / static_cast<double>(problem.pixels()));
    const int64_t count = smaller(L1_CHUNK, problem.pixels() - begin);
    float sums[Rows][Columns];
    l1_chunk<Rows, Columns>(problem.x + row * problem.pixels() + begin, problem.y + column * problem.pixels() + begin,
                            problem.pixels(), count, sums);
    for (int i = 0; i < Rows; ++i)
        for (int k = 0; k < Columns; ++k)
            add_exactly(out.sum[i * out.pitch + k], out.rest[i * out.rest_pitch + k], sums[i][k] * scale);
}

Sums sums_of(const Pairwise &problem, const Block &block) {
    return {block.out, problem.m, block.rest, block.columns()};
}

// out += l1_weight sum|x - y| over a chunk, for Rows rows and a range of columns
template <int Rows>
void l1_rows(const Pairwise &problem, int64_t row, int64_t first_column, int64_t last_column, int64_t begin, Sums out) {
    int64_t k = first_column;
    for (; k + 4 <= last_column; k += 4) add_l1<Rows, 4>(problem, row, k, begin, out.at(0, k - first_column));
    for (; k < last_column; ++k) add_l1<Rows, 1>(problem, row, k, begin, out.at(0, k - first_column));
}

// Blocks of the matrix.

void block_l1(const Pairwise &problem, const Block &block, int64_t first_row, int64_t last_row) {
    const Sums sums = sums_of(problem, block);
    for (int64_t i = first_row; i < last_row; ++i)
        for (int64_t k = 0; k < block.columns(); ++k) {
            const Sums at = sums.at(i - block.first_row, k);
            *at.sum = *at.rest = 0;
        }
    if (problem.l1_weight == 0) return;
    for (int64_t k = block.first_column; k < block.last_column; k += L1_COLUMNS) {
        const int64_t end = smaller(k + L1_COLUMNS, block.last_column);
        for (int64_t begin = 0; begin < problem.pixels(); begin += L1_CHUNK) {
            int64_t i = first_row;
            const auto out = [&] { return sums.at(i - block.first_row, k - block.first_column); };
            for (; i + L1_ROWS <= last_row; i += L1_ROWS) l1_rows<L1_ROWS>(problem, i, k, end, begin, out());
            for (; i < last_row; ++i) l1_rows<1>(problem, i, k, end, begin, out());
        }
    }
}

int64_t block_rows(const Pairwise &problem) {
    constexpr int64_t CACHE = 4 << 20, FEWEST = 64, MOST = 1024;
    const int64_t fitting = CACHE / (tile_at(problem, 0).x_size() * static_cast<int64_t>(sizeof(float)));
    return larger(FEWEST, smaller(fitting, MOST)) / LANES * LANES;
}

// to = the tile's pixels of real image i, less its offset
void copy_pixels(const Pairwise &problem, const Tile &tile, int64_t i, float offset, float *to) {
    const float *from = problem.x + i * problem.pixels() + tile.first_pixel;
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
        lanes_to_rows(work.x, tile.x_size() - tile.pixels(), lanes, to + tile.pixels(), tile.x_size());
    }
}

void block_tile(const Pairwise &problem, const Block &block, int64_t t, const float *x_records, int64_t first_row,
                int64_t last_row, int64_t first_column, int64_t last_column, void *memory) {
    Scratch scratch{static_cast<char *>(memory)};
    Workspace work = workspace(problem, scratch);
    const Tile tile = tile_at(problem, t);
    const TileSum<float> sum = tile_sum<float>(problem);
    const Sums sums = sums_of(problem, block);
    const float safe = RISKY * static_cast<float>(tile.all_positions);
    for (int64_t k = first_column; k < last_column; k += LANES) {
        prepare_y(problem, tile, k, last_column, work);
        const int lanes = static_cast<int>(smaller(LANES, last_column - k));
        const float risk = largest_lane(work.y[tile.y_risk()]);
        for (int64_t i = first_row - block.first_row; i < last_row - block.first_row; ++i) {
            const float *x = x_records + i * tile.x_size();
            const TileSum<float> sum_one = x[tile.x_risk()] * risk > safe ? sum_exactly<float> : sum;
            const Vec cost = share(problem, tile, sum_one(problem, tile, x, work.y, work));
            const Sums to = sums.at(i, k - block.first_column);
            if (lanes == LANES) {
                Vec total = load(to.sum), rest = load(to.rest);
                add_exactly(total, rest, cost);
                store(to.sum, total);
                store(to.rest, rest);
            } else {
                for (int lane = 0; lane < lanes; ++lane) add_exactly<float>(to.sum[lane], to.rest[lane], cost[lane]);
            }
        }
    }
}

// Chosen pairs.

int64_t x_record(const Pairwise &problem) { return tile_at(problem, 0).x_size(); }
int64_t y_record(const Pairwise &problem) { return tile_at(problem, 0).y_size(); }

int64_t needed_scratch(const Pairwise &problem) {
    Scratch scratch{nullptr};
    workspace(problem, scratch);
    return scratch.used;
}

void x_records(const Pairwise &problem, int64_t t, int64_t origin, int64_t first, int64_t last, float *records,
               void *memory) {
    Scratch scratch{static_cast<char *>(memory)};
    Workspace work = workspace(problem, scratch);
    const Tile tile = tile_at(problem, t);
    x_block(problem, tile, first, last, records + (first - origin) * tile.x_size(), work);
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
              int64_t last, float *out, float *rest) {
    for (int64_t p = first; p < last; ++p) {
        out[order[p]] = rest[order[p]] = 0;
        if (problem.l1_weight == 0) continue;
        for (int64_t begin = 0; begin < problem.pixels(); begin += L1_CHUNK)
            add_l1<1, 1>(problem, rows[order[p]], columns[order[p]], begin, {out + order[p], 1, rest + order[p], 1});
    }
}

// LANES pairs at a time. Where they all have one real image, its record is used as it is.
void pairs_tile(const Pairwise &problem, int64_t t, const float *x_records, const float *y_records, const int64_t *rows,
                const int64_t *columns, const int64_t *order, int64_t first, int64_t last, float *out, float *rest,
                void *memory) {
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
        const float safe = RISKY * static_cast<float>(tile.all_positions);
        Vec quarters, risk = work.y[tile.y_risk()];
        for (int lane = 0; lane < LANES; ++lane) risk[lane] *= x[lane][tile.x_risk()];
        const bool exactly = largest_lane(risk) > safe;
        if (one_row) {
            quarters = (exactly ? sum_exactly<float> : sum_one)(problem, tile, x[0], work.y, work);
        } else {
            rows_to_lanes(x, tile.x_size(), work.x);
            quarters = (exactly ? sum_exactly<Vec> : sum_each)(problem, tile, work.x, work.y, work);
        }
        const Vec cost = share(problem, tile, quarters);
        for (int lane = 0; lane < lanes; ++lane)
            add_exactly<float>(out[order[p + lane]], rest[order[p + lane]], cost[lane]);
    }
}

}  // namespace

extern const Kernel kernel;
const Kernel kernel = {NEUROSQL_TEXT(NEUROSQL_ISA),
                       LANES,
                       needed_scratch,
                       block_rows,
                       block_l1,
                       block_tile,
                       tile_count,
                       x_record,
                       y_record,
                       x_records,
                       y_records,
                       pairs_l1,
                       pairs_tile};

}  // namespace NEUROSQL_ISA
}  // namespace neurosql
