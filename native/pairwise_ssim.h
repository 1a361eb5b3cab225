// SSIM of two images in one tile. X is the type of a real image's values: float for one image against LANES others, or
// Vec for LANES pairs.
#pragma once

#include "compiler.h"
#include "pairwise.h"
#include "pairwise_statistics.h"
#include "pairwise_tiles.h"
#include "pairwise_vectors.h"

namespace neurosql {
namespace NEUROSQL_ISA {
namespace {

// This many quotients are added as one fraction before the division. The product of three denominators stays within the
// range of a float for pixels up to about 1000.
constexpr int SHARED = 3;

struct Fraction {
    Vec top, bottom;
};

NEUROSQL_INLINE Fraction sum_of(Fraction a, Fraction b) {
    return {a.top * b.bottom + b.top * a.bottom, a.bottom * b.bottom};
}

// A quarter of SSIM at one position, from the covariance + C2/2. The covariance is limited to the product of the
// deviations, which are exact: where one image is flat, no rounding error is left.
template <class X> NEUROSQL_INLINE Fraction quarter_ssim(Vec covariance, const X *x, const Vec *y, Vec offset) {
    const Vec y_mean = y[0] + offset;
    const Vec luminance = x[1] * y_mean + C1 / 2;
    covariance = between(covariance, C2 / 2 - x[4] * y[1], C2 / 2 + x[4] * y[1]);
    return {luminance * covariance, (y_mean * y_mean + x[2]) * (y[1] * y[1] + x[3])};
}

// Windows are symmetric: the two values that share a tap are added first. The taps come in the order of least rounding:
// the smallest first in a sum that grows, the largest first in a sum that starts near the negative of its result.
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

// One tile of a picture, for both images of a pair.
template <class X> struct Plane {
    const X *x_pixels, *x_statistics;
    const Vec *y_pixels, *y_statistics;
    Vec offset;
    int width, positions;
    int64_t rows, rows_of_positions;
};

// The sum of a quarter of SSIM over Rows rows of positions, from `row` on. The ring holds the rows they need.
template <int Half, int Rows, class X>
NEUROSQL_INLINE Vec sum_down(const Plane<X> &plane, const Vec (*ring)[BLOCK], int64_t row, int64_t first_pixel_row,
                             const Vec *taps) {
    constexpr int GROUPS = (Rows + SHARED - 1) / SHARED;
    const Vec *line[Rows + 2 * Half];
    for (int k = 0; k < Rows + 2 * Half; ++k) line[k] = ring[(first_pixel_row + k) & (RING - 1)];
    // Each sum takes few numbers, because a long sum of nearly equal numbers drifts.
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

// Row by row: the products are smoothed across and go into the ring. Whenever a block of rows is complete, it is
// smoothed down and added to the sum. The ring stays in the first-level cache.
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

// The window mean of values that lie `pitch` apart.
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
        // The planes that a window needs are stored at their depth modulo the window, so their order rotates with d.
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

// The same sum with covariances in double, for any tile. It is slower.
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

// The tile's share of ssim_weight (1 - SSIM), from its sum of a quarter of SSIM.
NEUROSQL_INLINE Vec share(const Pairwise &problem, const Tile &tile, Vec quarters) {
    const double weight = problem.ssim_weight / static_cast<double>(problem.positions());
    const float most = static_cast<float>(weight * static_cast<double>(tile.all_positions));
    return most - quarters * static_cast<float>(4 * weight);
}

}  // namespace
}  // namespace NEUROSQL_ISA
}  // namespace neurosql
