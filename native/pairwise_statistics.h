// Statistics of LANES images in one tile: window means, standard deviations, and how much rounding may hurt (the risk).
#pragma once

#include "compiler.h"
#include "pairwise.h"
#include "pairwise_tiles.h"
#include "pairwise_vectors.h"

namespace neurosql {
namespace NEUROSQL_ISA {
namespace {

// Rounding E[x'y'] makes an error of about m'_x m'_y u / (v_x + v_y + C2) in SSIM, where u is the unit roundoff. That
// is at most u times one factor per image, m' / root of (v + C2/2). An image's risk is the root of the sum of squares
// of its factor over a tile. If the product of two risks is more than RISKY per position, the pair is summed in double.
// Windows with a variance up to FLAT are flat and add no error.
constexpr float RISKY = 30.0f;
constexpr float FLAT = 1e-15f;

constexpr float C1 = 0.01f * 0.01f;
constexpr float C2 = 0.03f * 0.03f;

// About the median of each lane, from pixels spread over the tile. Any value would be correct: see pairwise_kernel.cpp.
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
    Wide *row, *row_squares;  // one row of the tile, in double because the variance is a small difference
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

// Window means along another axis, on which neighbours lie `inner` apart; exchanges `values` and `spare`.
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

// Window means along the other axes of values that have been averaged along the width.
void smooth_other_axes(const Pairwise &problem, const Tile &tile, const double *taps, Wide *&values, Wide *&spare) {
    const Axis &deep = problem.depth, &down = tile.down;
    if (down.length > 1) smooth_axis(down, deep.length, tile.positions, taps, values, spare);
    if (deep.length > 1) smooth_axis(deep, 1, down.positions * tile.positions, taps, values, spare);
}

// Subtracts each lane's offset from its pixels and finds means and standard deviations of what is left.
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

// Gathers the tile's pixels of images [first, last), at most LANES; lanes without an image repeat the last one.
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

// work.x = m', m, m^2 + C1, v + C2, root of v of each position, then what rounding lost of each m', then the risk.
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

// work.y = pixels y', then m', root of v of each position, then what rounding lost of each m', the risk and the offset.
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

}  // namespace
}  // namespace NEUROSQL_ISA
}  // namespace neurosql
