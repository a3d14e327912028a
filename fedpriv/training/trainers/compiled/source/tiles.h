// Cuts sums, rows of vectors, into tiles that stay in registers. How large a tile is is part of its type.
#pragma once
#include <type_traits>

#include "vectors.h"

template <int N>
using Count = std::integral_constant<int, N>;

// What a function captures stays in registers where it is inlined.
#define INLINED __attribute__((always_inline))

// use(Count<n>, from) with the n of 1 to N that `n` is.
template <int N, class Use>
INLINED inline void counted(int64_t n, int64_t from, const Use& use) {
  if (n == N)
    use(Count<N>{}, from);
  else if constexpr (N > 1)
    counted<N - 1>(n, from, use);
}

// use(Count<n>) for an `n` of 1, 2, 4 or 8, where it pays that the compiler knows it; else use(Count<0>).
template <int N = 8, class Use>
INLINED inline auto known(int64_t n, const Use& use) {
  if constexpr (N == 0)
    return use(Count<0>{});
  else
    return n == N ? use(Count<N>{}) : known<N / 2>(n, use);
}

// use(Count<rows>, Count<vectors>, first row, first vector) for every tile of at most ROWS x VECTORS. Rows are cut
// about evenly: in a tile of few sums each waits for itself.
template <int ROWS, int VECTORS, class Use>
INLINED inline void in_tiles(int64_t rows, int64_t vectors, const Use& use) {
  if (rows == 0) return;
  const int64_t tiles = (rows + ROWS - 1) / ROWS, least = rows / tiles, longer = rows % tiles;
  auto strip = [&](auto width, int64_t column) INLINED {
    for (int64_t t = 0, row = 0, here; t < tiles; ++t, row += here) {
      here = least + (t < longer);
      counted<ROWS>(here, row, [&](auto height, int64_t from) INLINED { use(height, width, from, column); });
    }
  };
  int64_t column = 0;
  for (; column + VECTORS <= vectors; column += VECTORS) strip(Count<VECTORS>{}, column);
  for (; column < vectors; ++column) strip(Count<1>{}, column);
}
