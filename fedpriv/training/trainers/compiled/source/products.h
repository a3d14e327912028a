// Matrix products whose right factor and result have rows of whole vectors.
#pragma once
#include "tiles.h"

// Left factors whose rows of `row` numbers begin at `at`: a matrix, and its transpose.
struct Plain {
  const float* at;
  int64_t row;
  Plain below(int64_t i) const { return {at + i * row, row}; }
  float operator()(int64_t i, int64_t k) const { return at[i * row + k]; }
};
struct Transposed {
  const float* at;
  int64_t row;
  Transposed below(int64_t i) const { return {at + i, row}; }
  float operator()(int64_t i, int64_t k) const { return at[k * row + i]; }
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
  void operator()(float* p, vec sum, int64_t) const { store(p, load(p) + sum); }
};

// R rows and V vectors of columns of left * right, where left has n columns: all sums stay in registers.
template <int R, int V, class Left, class Put>
inline void tile(Left left, int64_t n, const float* right, int64_t right_row, float* out, int64_t out_row,
                 int64_t column, Put put) {
  vec sum[R][V] = {};
  for (int64_t k = 0; k < n; ++k, right += right_row) {
    vec r[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) r[v] = held(load(right + v * LANES));
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sum[i][v] += left(i, k) * r[v];
  }
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) put(out + i * out_row + v * LANES, sum[i][v], column + v * LANES);
}

// out (rows, columns) becomes what `put` makes of left (rows, n) * right. columns: a multiple of LANES.
template <class Left, class Put>
inline void product(Left left, int64_t rows, int64_t n, const float* right, int64_t right_row, int64_t columns,
                    float* out, int64_t out_row, Put put) {
  in_tiles<TILE_ROWS, TILE_VECTORS>(rows, columns / LANES, [&](auto height, auto width, int64_t i, int64_t j) {
    constexpr int R = decltype(height)::value, V = decltype(width)::value;
    j *= LANES;
    tile<R, V>(left.below(i), n, right + j, right_row, out + i * out_row + j, out_row, j, put);
  });
}

// out (padded(n), padded(m)) = a^T for a (padded(m), padded(n)).
inline void transpose(const float* a, int64_t m, int64_t n, float* out) {
  for (int64_t i = 0; i < m; i += LANES)
    for (int64_t j = 0; j < n; j += LANES) {
      vec block[LANES];
      const float* from = a + i * padded(n) + j;
      float* to = out + j * padded(m) + i;
#pragma GCC unroll 16
      for (int r = 0; r < LANES; ++r, from += padded(n)) block[r] = load(from);
      transpose(block);
#pragma GCC unroll 16
      for (int r = 0; r < LANES; ++r, to += padded(m)) store(to, block[r]);
    }
}

// out (rows, padded(m)) = a b^T for a (rows, columns) and b (padded(m), columns), by dot products: for so few rows that
// transposing b would not pay.
inline void dot_products(const float* a, int64_t rows, const float* b, int64_t m, int64_t columns, float* out) {
  known(columns / LANES, [=](auto vectors) INLINED {
    const int64_t row = vectors ? vectors * LANES : columns;
    for (int64_t r = 0; r < rows; ++r) {
      const float *left = a + r * row, *right = b;
      for (int64_t i = 0; i < m; i += LANES) {
        vec sum[LANES] = {};
#pragma GCC unroll 16
        for (int k = 0; k < LANES; ++k)
#pragma GCC unroll 8
          for (int64_t j = 0; j < row; j += LANES, right += LANES) sum[k] += load(left + j) * load(right);
        store(out + r * padded(m) + i, sums(sum));
      }
    }
  });
}

// out += the sum of the rows of a (rows, columns).
inline void add_rows(const float* a, int64_t rows, int64_t columns, float* out) {
  for (int64_t j = 0; j < columns; j += LANES) {
    vec sum{};
    for (int64_t i = 0; i < rows; ++i) sum += load(a + i * columns + j);
    store(out + j, load(out + j) + sum);
  }
}
