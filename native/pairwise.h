// What bind_pairwise.cpp (arguments, threads, choice of the instruction set) and pairwise_kernel.cpp (the work) share.
#pragma once

#include <cstdint>

namespace neurosql {

constexpr int MAX_WINDOW = 11;

// One spatial axis: its length, the number of taps of the window along it, the stride of the windows and the number of
// windows. An axis that the images do not have is of length 1 with one tap.
struct Axis {
    int64_t length = 1;
    int window = 1;
    int64_t stride = 1;
    int64_t positions = 1;
};

// C[i, k] = ssim_weight (1 - SSIM(x_i, y_k)) + l1_weight mean|x_i - y_k|.
struct Pairwise {
    const float *x, *y;  // (n, channels, depth, height, width) and (m, ...)
    int64_t n, m, channels;
    Axis depth, height, width;
    float taps[MAX_WINDOW];  // for every axis whose window has more than one tap
    double ssim_weight, l1_weight;

    int64_t plane() const { return depth.length * height.length * width.length; }
    int64_t pixels() const { return channels * plane(); }
    int64_t positions() const { return channels * depth.positions * height.positions * width.positions; }
};

// A block of the matrix: the costs so far, and what rounding has lost of them.
struct Block {
    int64_t first_row, last_row, first_column, last_column;
    float *out;   // its first entry; rows are as far apart as the matrix has columns
    float *rest;  // rows are as far apart as the block has columns

    int64_t rows() const { return last_row - first_row; }
    int64_t columns() const { return last_column - first_column; }
};

// What one instruction set offers. Images are worked on in tiles: a tile is a strip of columns of one channel, and a
// record holds one image's pixels and statistics in a tile, as floats.
//
// The caller provides scratch memory, aligned to 64 bytes; nothing here allocates.
struct Kernel {
    const char *name;
    int lanes;

    // Scratch memory that any call needs, in bytes.
    int64_t (*scratch)(const Pairwise &);

    // A block of the matrix: its costs begin with the absolute differences, to which each tile adds its share. The
    // records are those of the block's real images for the tile, one after another.
    int64_t (*block_rows)(const Pairwise &);  // at most this many real images, so that their records stay in the cache
    void (*block_l1)(const Pairwise &, const Block &, int64_t first_row, int64_t last_row);
    void (*block_tile)(const Pairwise &, const Block &, int64_t tile, const float *x_records, int64_t first_row,
                       int64_t last_row, int64_t first_column, int64_t last_column, void *scratch);

    int64_t (*tiles)(const Pairwise &);
    int64_t (*x_record)(const Pairwise &);  // floats
    int64_t (*y_record)(const Pairwise &);
    // Records of the images [first, last) for one tile; `records` begins with that of the image `origin`.
    void (*x_records)(const Pairwise &, int64_t tile, int64_t origin, int64_t first, int64_t last, float *records,
                      void *scratch);
    void (*y_records)(const Pairwise &, int64_t tile, int64_t first, int64_t last, float *records, void *scratch);

    // Chosen pairs: records of all images for one tile, then the pairs' share of that tile.
    void (*pairs_l1)(const Pairwise &, const int64_t *rows, const int64_t *columns, const int64_t *order, int64_t first,
                     int64_t last, float *out, float *rest);
    // out[p] += this tile's share of pair p, for p = order[first..last); rest[p] += what rounding loses of it.
    void (*pairs_tile)(const Pairwise &, int64_t tile, const float *x_records, const float *y_records,
                       const int64_t *rows, const int64_t *columns, const int64_t *order, int64_t first, int64_t last,
                       float *out, float *rest, void *scratch);
};

namespace baseline {
extern const Kernel kernel;
}
#ifdef NEUROSQL_HAS_avx2
namespace avx2 {
extern const Kernel kernel;
}
#endif
#ifdef NEUROSQL_HAS_avx512
namespace avx512 {
extern const Kernel kernel;
}
#endif

}  // namespace neurosql
