// Tiles: the parts of the images that are worked on at one time, and the layout of an image's record for a tile.
#pragma once

#include "pairwise.h"
#include "pairwise_vectors.h"

namespace neurosql {
namespace NEUROSQL_ISA {
namespace {

// BLOCK is the number of outputs that one pass of the filter keeps in registers, across and down; it is also the width
// of a strip. A ring of rows holds what a block of outputs needs: BLOCK + MAX_WINDOW - 1 rows.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int BLOCK = 9;
constexpr int RING = 32;
#else
constexpr int BLOCK = 6;
constexpr int RING = 16;
#endif
static_assert(RING >= BLOCK + MAX_WINDOW - 1 && (RING & (RING - 1)) == 0, "the ring holds a block and wraps by a mask");

// BAND is the number of rows of windows in a tile of pictures. SIGNAL_BLOCK is the width of a tile of signals, which
// have one row only. Small tiles stay in the cache and have values near their own offset; large ones share more rows
// between windows.
constexpr int BAND = (LANES == 16 ? 3 : 5) * BLOCK;
constexpr int SIGNAL_BLOCK = 16;

// Hands out pieces of the caller's scratch memory. Without memory it only counts what is needed.
struct Scratch {
    char *base;
    int64_t used = 0;

    template <class T> T *take(int64_t count) {
        T *piece = base ? reinterpret_cast<T *>(base + used) : nullptr;
        used += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
        return piece;
    }
};

// Statistics of each position.
constexpr int X_STATISTICS = 5;  // m', m, m^2 + C1, v + C2, root of v
constexpr int Y_STATISTICS = 2;  // m', root of v

// A part of one channel: as many columns of windows as one pass of the filter takes, and a band of rows in pictures or
// all rows in signals and volumes.
struct Tile {
    int64_t first_pixel;  // in the image
    int64_t width;        // columns of pixels
    int64_t positions;    // columns of windows
    Axis down;            // this tile's part of the height
    int64_t rows;         // depth * height
    int64_t all_positions;

    int64_t pixels() const { return rows * width; }
    // Where the parts of a record begin, counted in vectors or floats: pixels, the statistics of each position, what
    // rounding lost of each m', the risk; y also has the offset.
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

// No tile is larger than tile 0.
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

}  // namespace
}  // namespace NEUROSQL_ISA
}  // namespace neurosql
