// Matrix products whose right factor and result have rows of whole vectors.
#pragma once
#include "vectors.h"

// The left factor, of n columns: element (i, k) lies at rows[i] + columns[k]. With the tables exchanged it is its own
// transpose.
struct Left {
  const float* at;
  const int64_t *rows, *columns;
  int64_t n;
  Left below(int64_t skipped) const { return {at, rows + skipped, columns, n}; }
};

// What becomes of a sum that belongs at p.
struct Set {
  void operator()(float* p, vec sum, int64_t) const { store(p, sum); }
};
struct SetPlus {
  const float* bias;
  void operator()(float* p, vec sum, int64_t column) const { store(p, sum + load(bias + column)); }
};
struct Add {
  float scale;
  void operator()(float* p, vec sum, int64_t) const { store(p, load(p) + scale * sum); }
};

// R rows and V vectors of columns of left * right: all sums stay in registers.
template <int R, int V, class Put>
inline void tile(Left left, const float* right, int64_t right_row, float* out, int64_t out_row, int64_t column,
                 Put put) {
  vec sum[R][V] = {};
  const float* row[R];
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) row[i] = left.at + left.rows[i];
  for (int64_t k = 0; k < left.n; ++k, right += right_row) {
    const int64_t at = left.columns[k];
    vec r[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) r[v] = load(right + v * LANES);
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sum[i][v] += row[i][at] * r[v];
  }
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) put(out + i * out_row + v * LANES, sum[i][v], column + v * LANES);
}

template <int R, int V, class Put>
inline void strip(Left left, int64_t rows, const float* right, int64_t right_row, float* out, int64_t out_row,
                  int64_t column, Put put) {
  int64_t i = 0;
  for (; i + R <= rows; i += R) tile<R, V>(left.below(i), right, right_row, out + i * out_row, out_row, column, put);
  if constexpr (R > 1)
    if (i < rows)
      strip<R / 2, V>(left.below(i), rows - i, right, right_row, out + i * out_row, out_row, column, put);
}

// out (rows, columns) becomes what `put` makes of left * right. columns: a multiple of LANES.
template <int V = TILE_VECTORS, class Put>
inline void product(Left left, int64_t rows, const float* right, int64_t right_row, int64_t columns, float* out,
                    int64_t out_row, Put put, int64_t from = 0) {
  int64_t j = from;
  for (; j + V * LANES <= columns; j += V * LANES)
    strip<TILE_ROWS, V>(left, rows, right + j, right_row, out + j, out_row, j, put);
  if constexpr (V > 1)
    if (j < columns) product<V / 2>(left, rows, right, right_row, columns, out, out_row, put, j);
}

// out (n, padded(m)) = a^T for a (m, padded(n)); the padding of out is zero.
inline void transpose(const float* a, int64_t m, int64_t n, float* out) {
  for (int64_t i = 0; i < m; i += LANES)
    for (int64_t j = 0; j < n; j += LANES) {
      vec block[LANES];
      for (int64_t r = 0; r < LANES; ++r) block[r] = i + r < m ? load(a + (i + r) * padded(n) + j) : vec{};
      transpose(block);
      for (int64_t r = 0; r < LANES && j + r < n; ++r) store(out + (j + r) * padded(m) + i, block[r]);
    }
}

// out (rows, padded(m)) = a b^T for a (rows, columns) and b (m, columns), by dot products: for so few rows that
// transposing b would not pay.
inline void dot_products(const float* a, int64_t rows, const float* b, int64_t m, int64_t columns, float* out) {
  for (; rows-- > 0; a += columns, out += padded(m))
    for (int64_t i = 0; i < m; i += LANES) {
      vec sum[LANES];
      for (int64_t r = 0; r < LANES; ++r) {
        sum[r] = vec{};
        for (int64_t j = 0; i + r < m && j < columns; j += LANES)
          sum[r] += load(a + j) * load(b + (i + r) * columns + j);
      }
      store(out + i, sums(sum));
    }
}

// out += scale * the sum of the rows of a (rows, columns).
inline void add_rows(const float* a, int64_t rows, int64_t columns, float* out, float scale) {
  for (int64_t j = 0; j < columns; j += LANES) {
    vec sum{};
    for (int64_t i = 0; i < rows; ++i) sum += load(a + i * columns + j);
    store(out + j, load(out + j) + scale * sum);
  }
}
