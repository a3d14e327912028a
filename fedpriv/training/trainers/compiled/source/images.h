// Layers on images: rows of (channels, height, width), as in the records.
#pragma once
#include "patches.h"
#include "products.h"

// The maxima, over windows side by side, of the weights times the patch of x below each pixel, plus the bias.
class Convolution final : public Layer {
 public:
  Convolution(Context& c, const Geometry& g, bool biased, bool lowest)
      : c(c), n(g.inputs * g.sides.pixels()), m(g.outputs), window(g.window.pixels()), pixels(g.out().pixels()),
        parts(padded(pixels) / LANES), x_row(padded(n)), y_row(padded(m * pixels)), patch(g.inputs * g.kernel.width),
        kernel(g.kernel), biased(biased), lowest(lowest), planes(c.memory, g), patches(c.memory, g, c.rows),
        weights(c.parameters.place(m * patches.size())), bias(c.parameters.place(m)),
        y(c.memory.take<float>(c.rows * y_row + LANES)), chosen(c.memory.take<int32_t>(c.rows * y_row + LANES)),
        sums(c.memory.take<float>(m * window * parts * LANES)), dweights(c.memory.take<float>(m * patches.size())),
        corners(c.memory.take<int32_t>(window * parts * LANES)), places(c.memory.take<int64_t>(patch)),
        rows_of(c.memory.take<const float*>(kernel.height * window * parts)) {
    c.gradients.need(std::max(x_row, y_row) + LANES);
    if (!y) return;
    std::fill_n(y, c.rows * y_row + LANES, 0.0f);
    const Sides out = g.out();
    for (int64_t k = 0; k < patch; ++k) places[k] = patches.weight(0, k / g.inputs, k % g.inputs);
    for (int64_t p = 0; p < window; ++p) {
      const int64_t line = p / g.window.width * g.stride.height, column = p % g.window.width * g.stride.width;
      for (int64_t i = 0; i < parts * LANES; ++i)
        corners[p * parts * LANES + i] = patches.corner(line + i / out.width * g.step().height,
                                                        column + i % out.width * g.step().width);
      for (int64_t i = 0; i < kernel.height * parts; ++i)
        rows_of[(i / parts * window + p) * parts + i % parts] =
            planes.row(line + i / parts, column) + i % parts * LANES;
    }
  }

  float* forward(float* x, int64_t rows) override {
    for (int64_t r = 0; r < rows; ++r) {
      patches.keep(r, x + r * x_row);
      planes.fill(x + r * x_row);
      multiply();
      pool(y + r * y_row, chosen + r * y_row);
    }
    return y;
  }

  float* backward(float* g, int64_t rows) override {
    float *below = c.gradients.other(g), *target = c.parameters.target;
    const float* w = c.parameters.weights + weights;
    // Skipped are products with zero, which are zero unless the other factor is not finite. A weight that is not stays
    // so, and arrives; of x that is not, the sum begins with NaN.
    std::fill_n(dweights, m * patches.size(), patches.nothing(rows));
    for (int64_t r = 0; r < rows; ++r) {
      if (!lowest) patches.clear();
      for (int64_t o = 0; o < m; ++o) {
        if (!patches.find(g + r * y_row + o * pixels, chosen + r * y_row + o * pixels, pixels)) continue;
        patches.add_weights(r, dweights + o * patches.size());
        if (!lowest) patches.add_patches(w + o * patches.size());
      }
      if (!lowest) patches.take(below + r * x_row);
    }
    if (!lowest) c.gradients.clear_padding(below, rows, n);
    // One sum for all records: adding each to the weights would round each to the weights' precision.
    for (int64_t i = 0; i < m * patches.size(); i += LANES)
      Add{}(target + weights + i, patches.without_padding(i, load(dweights + i)), i);
    for (int64_t o = 0; biased && o < m; ++o) {
      vec sum{};
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t i = 0; i < pixels; i += LANES) sum += first(pixels - i, load(g + r * y_row + o * pixels + i));
      target[bias + o] += total(sum);
    }
    return below;
  }

  // In torch's order (outputs, inputs, kernel's height and width).
  void unpack(const float* own, float*& flat) const override {
    for (int64_t o = 0; o < m; ++o)
      for (int64_t k = 0; k < patch / kernel.width; ++k)
        for (int64_t i = 0; i < kernel.height; ++i)
          for (int64_t j = 0; j < kernel.width; ++j)
            *flat++ = own[weights + o * patches.size() + patches.weight(i, j, k)];
    if (biased) flat = std::copy_n(own + bias, m, flat);
  }

 private:
  // sums (outputs, window, padded(maxima)) = the weights times the planes, plus the bias.
  void multiply() const {
    const float *w = c.parameters.weights + weights, *b = c.parameters.weights + bias;
    const int64_t vectors = window * parts, w_row = patches.size(), channel = planes.channel;
    in_tiles<PATCH_ROWS, PATCH_VECTORS>(m, vectors, [&](auto rows, auto columns, int64_t o, int64_t u) {
      constexpr int R = decltype(rows)::value, V = decltype(columns)::value;
      vec sum[R][V];
#pragma GCC unroll 16
      for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) sum[i][v] = broadcast(b[o + i]);
      for (int64_t line = 0; line < kernel.height; ++line) {
        const float *left = w + o * w_row + patches.weight(line, 0, 0), *right[V];
        std::copy_n(rows_of + line * vectors + u, V, right);
        for (int64_t k = 0; k < patch; ++k) {
          vec x[V];
#pragma GCC unroll 8
          for (int v = 0; v < V; ++v) x[v] = load(right[v] + k * channel);
#pragma GCC unroll 16
          for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
            for (int v = 0; v < V; ++v) sum[i][v] += left[i * w_row + places[k]] * x[v];
        }
      }
#pragma GCC unroll 16
      for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) store(sums + ((o + i) * vectors + u + v) * LANES, sum[i][v]);
    });
  }

  // Of equal numbers of a window the first is chosen, of NaN the last. where: at which corner its patch begins.
  void pool(float* to, int32_t* where) const {
    const int64_t next = parts * LANES;
    for (int64_t o = 0; o < m; ++o)
      for (int64_t i = 0; i < next; i += LANES) {
        const float* sum = sums + o * window * next + i;
        vec most = load(sum);
        ints place = load<ints>(corners + i);
        for (int64_t p = 1; p < window; ++p) {
          const vec v = load(sum + p * next);
          const ints better = (v > most) | (v != v);
          most = better ? v : most;
          place = better ? load<ints>(corners + p * next + i) : place;
        }
        store(to + o * pixels + i, first(pixels - i, most));
        store(where + o * pixels + i, place);
      }
  }

  Context& c;
  const int64_t n, m, window, pixels, parts, x_row, y_row, patch;
  const Sides kernel;
  const bool biased, lowest;
  Planes planes;
  Patches patches;
  const int64_t weights, bias;
  float* y;
  int32_t* chosen;
  float *sums, *dweights;
  int32_t* corners;  // of the patch below each place of each window
  int64_t* places;   // of a patch's numbers in a row of weights
  const float** rows_of;  // (kernel.height, vectors of sums): where the planes begin that a row of a patch meets
};
