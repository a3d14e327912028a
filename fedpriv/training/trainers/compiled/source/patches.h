// The gradients of a convolution. That of its results is mostly zero: a maximum passes it to one number of its window,
// and ReLU and dropout to none. So each number that is not zero is multiplied with its patch of x for the gradient of
// the weights, and with the weights for that of the patch.
#pragma once
#include "planes.h"

class Patches {
 public:
  Patches(Workspace& memory, const Geometry& g, int64_t rows)
      : n(g.inputs), cell(cell_of(g.inputs, g.kernel.width)), run(g.kernel.width * cell), run_row(padded(run)),
        sides(g.sides), kernel(g.kernel), zeros(g.zeros), around(g.around()), pitch(around.width * cell),
        image(around.pixels() * cell), images(memory.take<float>(rows * image + LANES)),
        gradient(memory.take<float>(image + LANES)), values(memory.take<float>(g.out().pixels() + LANES)),
        places(memory.take<int32_t>(g.out().pixels() + LANES)) {
    if (images) std::fill_n(images, rows * image + LANES, 0.0f);
  }

  // Weights of an output: (kernel's height, padded(kernel's width, cell)), where all but `cell` = channels are zero.
  int64_t size() const { return kernel.height * run_row; }
  int64_t weight(int64_t line, int64_t column, int64_t channel) const {
    return line * run_row + column * cell + channel;
  }
  // The vector from weight i on, zero where a row has ended.
  vec without_padding(int64_t i, vec weights) const { return first(run - i % run_row, weights); }
  // Where the patch begins that has pixel (line, column) first.
  int32_t corner(int64_t line, int64_t column) const { return int32_t((line * around.width + column) * cell); }

  // Keeps record r, x (channels, height, width), as (height, width, cell) with zeros around.
  void keep(int64_t r, const float* x) const {
    for (int64_t i = 0; i < sides.height; ++i, x += sides.width) {
      float* row = pixels(images + r * image, i);
      if (cell == 1)
        std::copy_n(x, sides.width, row);
      else if (cell == n && n % LANES)
        for (int64_t k = 0; k < n; ++k)
          for (int64_t j = 0; j < sides.width; ++j) row[j * cell + k] = x[k * sides.pixels() + j];
      else
        blocks([&](int64_t k, int64_t j) {
          vec block[LANES];
          for (int64_t i = 0; i < LANES; ++i)
            block[i] = k + i < n ? load(x + (k + i) * sides.pixels() + j) : vec{};
          transpose(block);
          for (int64_t i = 0; i < LANES && j + i < sides.width; ++i) store(row + (j + i) * cell + k, block[i]);
        });
    }
  }

  // Zero times every number of the records kept: zero, unless one of them is not finite.
  float nothing(int64_t rows) const {
    vec sum{};
    for (int64_t i = 0; i < rows * image; i += LANES) sum += 0 * first(rows * image - i, load(images + i));
    return total(sum);
  }

  // Finds the numbers of g (count,) that are not zero, each with where its patch begins; returns whether there are any.
  bool find(const float* g, const int32_t* corners, int64_t count) {
    found = 0;
    for (int64_t i = 0; i < count; i += LANES)
      found += squeeze(first(count - i, load(g + i)), load<ints>(corners + i), values + found, places + found);
    return found > 0;
  }

  // dw (size(),) += the sum of what was found times its patches of record r.
  void add_weights(int64_t r, float* dw) const {
    const float* x = images + r * image;
    in_tiles<PATCH_ROWS, PATCH_VECTORS>(kernel.height, run_row / LANES, [&](auto lines, auto width, int64_t i,
                                                                            int64_t j) {
      constexpr int R = decltype(lines)::value, V = decltype(width)::value;
      vec sum[R][V] = {};
      for (int64_t e = 0; e < found; ++e) {
        const vec g = broadcast(values[e]);
        each<R, V>(x + places[e] + i * pitch + j * LANES, pitch,
                   [&](const float* p, int a, int b) { sum[a][b] += g * load(p); });
      }
      each<R, V>(dw + i * run_row + j * LANES, run_row, [&](float* p, int a, int b) { store(p, load(p) + sum[a][b]); });
    });
  }

  void clear() const { std::fill_n(gradient, image + LANES, 0.0f); }

  // Adds what was found times the weights w (size(),) to its patches of the gradient.
  void add_patches(const float* w) const {
    in_tiles<PATCH_ROWS, PATCH_VECTORS>(kernel.height, run_row / LANES, [&](auto lines, auto width, int64_t i,
                                                                            int64_t j) {
      constexpr int R = decltype(lines)::value, V = decltype(width)::value;
      vec weights[R][V];
      each<R, V>(w + i * run_row + j * LANES, run_row, [&](const float* p, int a, int b) { weights[a][b] = load(p); });
      for (int64_t e = 0; e < found; ++e) {
        const vec g = broadcast(values[e]);
        each<R, V>(gradient + places[e] + i * pitch + j * LANES, pitch,
                   [&](float* p, int a, int b) { store(p, load(p) + g * weights[a][b]); });
      }
    });
  }

  // The gradient as below (channels, height, width).
  void take(float* below) const {
    for (int64_t i = 0; i < sides.height; ++i, below += sides.width) {
      const float* row = pixels(gradient, i);
      if (cell == n && n % LANES)
        for (int64_t k = 0; k < n; ++k)
          for (int64_t j = 0; j < sides.width; ++j) below[k * sides.pixels() + j] = row[j * cell + k];
      else
        blocks([&](int64_t k, int64_t j) {
          vec block[LANES];
          for (int64_t i = 0; i < LANES; ++i) block[i] = j + i < sides.width ? load(row + (j + i) * cell + k) : vec{};
          transpose(block);
          for (int64_t i = 0; i < LANES && k + i < n; ++i)
            store_first(sides.width - j, below + (k + i) * sides.pixels() + j, block[i]);
        });
    }
  }

 private:
  // Numbers of a pixel: whole vectors, which are faster to reach, unless that makes rows of patches much longer.
  static int64_t cell_of(int64_t n, int64_t width) {
    return 2 * width * padded(n) <= 3 * padded(width * n) ? padded(n) : n;
  }

  template <class Number>
  Number* pixels(Number* of, int64_t line) const {
    return of + corner(line + zeros.height, zeros.width);
  }

  // Squares of channels and columns of a row.
  template <class Use>
  void blocks(Use use) const {
    for (int64_t k = 0; k < n; k += LANES)
      for (int64_t j = 0; j < sides.width; j += LANES) use(k, j);
  }

  // use(p, a, b) for each vector of a tile that begins at `p`.
  template <int R, int V, class Number, class Use>
  static inline __attribute__((always_inline)) void each(Number* p, int64_t row, Use use) {
#pragma GCC unroll 16
    for (int a = 0; a < R; ++a, p += row)
#pragma GCC unroll 8
      for (int b = 0; b < V; ++b) use(p + b * LANES, a, b);
  }

  const int64_t n, cell, run, run_row;
  const Sides sides, kernel, zeros, around;
  const int64_t pitch, image;
  float *images, *gradient, *values;
  int32_t* places;
  int64_t found = 0;
};
