// Cuts sums, rows of vectors, into tiles that stay in registers. How large a tile is is part of its type.
#pragma once
#include <type_traits>

#include "vectors.h"

template <int N>
using Count = std::integral_constant<int, N>;

// use(Count<n>, from) with the n of 1 to N that `n` is.
template <int N, class Use>
inline void counted(int64_t n, int64_t from, Use use) {
  if (n == N)
    use(Count<N>{}, from);
  else if constexpr (N > 1)
    counted<N - 1>(n, from, use);
}

// use(Count<rows>, Count<vectors>, first row, first vector) for every tile. Rows are cut about evenly: in a tile of few
// sums each waits for itself.
template <class Use>
inline void in_tiles(int64_t rows, int64_t vectors, Use use) {
  auto strip = [&](auto width, int64_t column) {
    int64_t row = 0;
    for (int64_t tiles = (rows + PATCH_ROWS - 1) / PATCH_ROWS; tiles > 0; --tiles) {
      const int64_t here = (rows - row + tiles - 1) / tiles;
      counted<PATCH_ROWS>(here, row, [&](auto height, int64_t from) { use(height, width, from, column); });
      row += here;
    }
  };
  int64_t column = 0;
  for (; column + PATCH_VECTORS <= vectors; column += PATCH_VECTORS) strip(Count<PATCH_VECTORS>{}, column);
  for (; column < vectors; ++column) strip(Count<1>{}, column);
}
