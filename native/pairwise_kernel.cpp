// The pairwise cost for one instruction set: compiled once per set, into the namespace that NEUROSQL_ISA names.
//
// A vector holds one value of LANES generated images, so that no step needs a shuffle: a real image's pixel is a scalar
// that multiplies a vector. Only E[xy] depends on both images; the rest of SSIM comes from statistics of each image:
//
//     SSIM = 4 (m_x m_y + C1/2) (E[x'y'] - m'_x m'_y + C2/2) / ((m_x^2 + C1 + m_y^2) (v_x + C2 + v_y))
//
// with means m, variances v and x' = x - (a constant of this image and tile). Such a shift does not change covariances,
// but it does change their rounding error: E[xy] and m_x m_y are both near 1 where two images are white, and their
// difference is compared with C2 = 0.0009. With the constant near the median, most flat parts have x' = 0 and no error.
// Elsewhere the covariance is kept within the bound set by the variances, which are found in double. Where both images
// have parts of little contrast far from the constant, the pair's tile is summed in double.
//
// Bottom up: pairwise_vectors.h, pairwise_tiles.h, pairwise_statistics.h (of one image), pairwise_ssim.h (of two) and
// pairwise_l1.h. This file adds them up for blocks of the matrix and for chosen pairs.
//
// This file and those headers use nothing of the standard library but integer types: its inline functions would be
// compiled with this file's instruction set and might be linked into code that runs without it. All they define is in
// an unnamed namespace inside NEUROSQL_ISA, for the same reason.
#include "pairwise.h"
#include "pairwise_l1.h"
#include "pairwise_ssim.h"
#include "pairwise_statistics.h"
#include "pairwise_tiles.h"
#include "pairwise_vectors.h"

#define NEUROSQL_TEXT_(name) #name
#define NEUROSQL_TEXT(name) NEUROSQL_TEXT_(name)

namespace neurosql {
namespace NEUROSQL_ISA {
namespace {

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

// Writes the tile's pixels of real image i, less its offset.
void copy_pixels(const Pairwise &problem, const Tile &tile, int64_t i, float offset, float *to) {
    const float *from = problem.x + i * problem.pixels() + tile.first_pixel;
    const float keep = is_own_mean(problem) ? 0.0f : 1.0f;
    for (int64_t row = 0; row < tile.rows; ++row, from += problem.width.length, to += tile.width)
        for (int64_t c = 0; c < tile.width; ++c) to[c] = (from[c] - offset) * keep;
}

// Writes the records of the real images [first, last) one after another: pixels x', then the statistics.
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

// Takes LANES pairs at a time. Where all of them share one real image, its record is used as it is.
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
