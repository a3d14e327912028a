// Layers on images (rows, height, width, padded(channels)).
#pragma once
#include "network.h"
#include "products.h"

struct Sides {
  int64_t height, width;
  int64_t pixels() const { return height * width; }
};

// Where the numbers of an image lie: of the records (channels, height, width), or of the layers here.
struct Strides {
  int64_t image, row, column, channel;
  static Strides record(int64_t channels, Sides s) {
    return {padded(channels * s.pixels()), s.width, 1, s.pixels()};
  }
  static Strides layer(int64_t channels, Sides s) {
    return {s.pixels() * padded(channels), s.width * padded(channels), padded(channels), 1};
  }
};

// y at a pixel = the weights times the patch of x below it, plus the bias. Products of patches, which are read where
// they lie, in a copy of x with zeros around it and no padding between channels: in it a row of a patch is one run.
class Convolution final : public Layer {
 public:
  Convolution(Context& c, int64_t inputs, int64_t outputs, Sides x_sides, Sides kernel, Sides stride, Sides zeros,
              Strides from, bool biased, bool lowest)
      : c(c), n(inputs), m(outputs), m_row(padded(m)), x_sides(x_sides), kernel(kernel), zeros(zeros),
        around{x_sides.height + 2 * zeros.height, x_sides.width + 2 * zeros.width},
        out{(around.height - kernel.height) / stride.height + 1, (around.width - kernel.width) / stride.width + 1},
        run(kernel.width * n), patch(kernel.height * run), image_size(around.pixels() * n), from(from), biased(biased),
        lowest(lowest), weights(c.parameters.place(patch * m_row)), bias(c.parameters.place(m)),
        images(c.memory.take<float>(c.rows * image_size)), y(c.memory.take<float>(c.rows * out.pixels() * m_row)),
        turned(c.memory.take<float>(m * padded(patch))), dweights(c.memory.take<float>(patch * m_row)),
        dimage(c.memory.take<float>(image_size + LANES)),
        dpatches(c.memory.take<float>(out.pixels() * padded(patch) + LANES)),
        corners(c.memory.take<int64_t>(out.pixels())), places(c.memory.take<int64_t>(patch)),
        g_rows(multiples(c.memory, out.pixels(), m_row)), columns(multiples(c.memory, m, 1)) {
    c.gradients.need(std::max(x_sides.pixels() * padded(n), out.pixels() * m_row));
    if (!images) return;
    for (int64_t i = 0; i < out.pixels(); ++i)
      corners[i] = (i / out.width * stride.height * around.width + i % out.width * stride.width) * n;
    for (int64_t k = 0; k < patch; ++k) places[k] = k / run * around.width * n + k % run;
    std::fill_n(images, c.rows * image_size, 0.0f);
    std::fill_n(dpatches, out.pixels() * padded(patch) + LANES, 0.0f);
  }

  float* forward(float* x, int64_t rows) override {
    const float* w = c.parameters.weights;
    for (int64_t r = 0; r < rows; ++r) {
      float* image = images + r * image_size;
      copy(x + r * from.image, image);
      product({image, corners, places, patch}, out.pixels(), w + weights, m_row, m_row, y + r * out.pixels() * m_row,
              m_row, SetPlus{w + bias});
    }
    return y;
  }

  // dW^T = patches^T g; the gradient of a patch is W g, and x's the sum of those of all patches that it is in.
  float* backward(float* g, int64_t rows) override {
    float *below = c.gradients.other(g), *target = c.parameters.target;
    if (!lowest) transpose(c.parameters.weights + weights, patch, m, turned);
    std::fill_n(dweights, patch * m_row, 0.0f);
    for (int64_t r = 0; r < rows; ++r) {
      const float* grad = g + r * out.pixels() * m_row;
      if (!lowest) spread(grad, below + r * x_sides.pixels() * padded(n));
      product({images + r * image_size, places, corners, out.pixels()}, patch, grad, m_row, m_row, dweights, m_row,
              Add{1});
    }
    // One sum for all records: adding each to the weights would round each to the weights' precision.
    for (int64_t i = 0; i < patch * m_row; i += LANES)
      Add{c.parameters.scale}(target + weights + i, load(dweights + i), i);
    if (biased) add_rows(g, rows * out.pixels(), m_row, target + bias, c.parameters.scale);
    return below;
  }

  // In torch's order (outputs, inputs, kernel's height and width); here (height, width, inputs, padded(outputs)).
  void pack(const float*& flat, float* own) const override {
    each([&](int64_t at) { own[weights + at] = *flat++; });
    for (int64_t o = 0; biased && o < m; ++o) own[bias + o] = *flat++;
  }

  void unpack(const float* own, float*& flat) const override {
    each([&](int64_t at) { *flat++ = own[weights + at]; });
    for (int64_t o = 0; biased && o < m; ++o) *flat++ = own[bias + o];
  }

 private:
  template <class Use>
  void each(Use use) const {
    for (int64_t o = 0; o < m; ++o)
      for (int64_t i = 0; i < n; ++i)
        for (int64_t k = 0; k < kernel.pixels(); ++k) use((k * n + i) * m_row + o);
  }

  void copy(const float* x, float* image) const {
    for (int64_t i = 0; i < x_sides.height; ++i) {
      float* pixels = image + ((i + zeros.height) * around.width + zeros.width) * n;
      for (int64_t k = 0; k < n; ++k)
        for (int64_t j = 0; j < x_sides.width; ++j)
          pixels[j * n + k] = x[i * from.row + j * from.column + k * from.channel];
    }
  }

  // x's gradient (pixels, padded(n)) from y's.
  void spread(const float* g, float* below) const {
    const int64_t patch_row = padded(patch);
    product({g, g_rows, columns, m}, out.pixels(), turned, patch_row, patch_row, dpatches, patch_row, Set{});
    std::fill_n(dimage, image_size, 0.0f);
    const int64_t whole = run / LANES * LANES;
    // Column by column: neighbours in a row overlap, and a sum that has just been stored in part is slow to load.
    for (int64_t j = 0; j < out.width; ++j)
      for (int64_t p = j; p < out.pixels(); p += out.width)
        for (int64_t k = 0; k < kernel.height; ++k) {
          const float* part = dpatches + p * patch_row + k * run;
          float* there = dimage + corners[p] + k * around.width * n;
          for (int64_t i = 0; i < whole; i += LANES) store(there + i, load(there + i) + load(part + i));
          store(there + whole, load(there + whole) + first(run - whole, load(part + whole)));
        }
    for (int64_t i = 0; i < x_sides.height; ++i)
      for (int64_t j = 0; j < x_sides.width; ++j, below += padded(n)) {
        const float* pixel = dimage + ((i + zeros.height) * around.width + j + zeros.width) * n;
        for (int64_t k = 0; k < n; k += LANES) store(below + k, first(n - k, load(pixel + k)));
      }
  }

  Context& c;
  const int64_t n, m, m_row;
  const Sides x_sides, kernel, zeros, around, out;
  const int64_t run, patch, image_size;
  const Strides from;
  const bool biased, lowest;
  const int64_t weights, bias;
  float *images, *y, *turned, *dweights, *dimage, *dpatches;
  // corners: where the patch of each pixel begins in an image. places: where each number of a patch lies in it.
  int64_t *corners, *places;
  const int64_t *g_rows, *columns;
};

// Maximum over windows side by side; the gradient goes to its place: of equal values the first, of NaN the last.
class MaxPool final : public Layer {
 public:
  MaxPool(Context& c, int64_t channels, Sides sides, Sides window)
      : c(c), row(padded(channels)), sides(sides), window(window),
        out{sides.height / window.height, sides.width / window.width},
        y(c.memory.take<float>(c.rows * out.pixels() * row)),
        chosen(c.memory.take<int32_t>(c.rows * out.pixels() * row)),
        offsets(c.memory.take<int64_t>(window.pixels())) {
    c.gradients.need(sides.pixels() * row);
    for (int64_t i = 0; offsets && i < window.pixels(); ++i)
      offsets[i] = (i / window.width * sides.width + i % window.width) * row;
  }

  float* forward(float* x, int64_t rows) override {
    each(rows, [&](int64_t from, int64_t at) {
      vec most = load(x + from);
      ints place{};
      for (int32_t i = 1; i < window.pixels(); ++i) {
        const vec v = load(x + from + offsets[i]);
        const ints better = (v > most) | (v != v);
        most = better ? v : most;
        place = better ? i + ints{} : place;
      }
      store(y + at, most);
      store(chosen + at, place);
    });
    return y;
  }

  float* backward(float* g, int64_t rows) override {
    float* below = c.gradients.other(g);
    each(rows, [&](int64_t from, int64_t at) {
      for (int32_t i = 0; i < window.pixels(); ++i)
        store(below + from + offsets[i], load<ints>(chosen + at) == i ? load(g + at) : vec{});
    });
    return below;
  }

 private:
  // Where a window begins in x, and its maximum in y.
  template <class Use>
  void each(int64_t rows, Use use) const {
    int64_t at = 0;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < out.height; ++i)
        for (int64_t j = 0; j < out.width; ++j) {
          const int64_t corner = (r * sides.pixels() + i * window.height * sides.width + j * window.width) * row;
          for (int64_t k = 0; k < row; k += LANES, at += LANES) use(corner + k, at);
        }
  }

  Context& c;
  const int64_t row;
  const Sides sides, window, out;
  float* y;
  int32_t* chosen;
  int64_t* offsets;  // of a window's places from its first
};

// Images to features in torch's order, (channels, height, width).
class Flatten final : public Layer {
 public:
  Flatten(Context& c, int64_t channels, Sides sides)
      : c(c), n(channels), pixels(sides.pixels()), x_row(padded(n)), y_row(padded(n * pixels)),
        y(c.memory.take<float>(c.rows * y_row)) {
    c.gradients.need(std::max(pixels * x_row, y_row));
  }

  float* forward(float* x, int64_t rows) override {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t k = 0; k < n; ++k)
        for (int64_t p = 0; p < pixels; ++p) y[r * y_row + k * pixels + p] = x[(r * pixels + p) * x_row + k];
    return y;
  }

  float* backward(float* g, int64_t rows) override {
    float* below = c.gradients.other(g);
    std::fill_n(below, rows * pixels * x_row, 0.0f);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t k = 0; k < n; ++k)
        for (int64_t p = 0; p < pixels; ++p) below[(r * pixels + p) * x_row + k] = g[r * y_row + k * pixels + p];
    return below;
  }

 private:
  Context& c;
  const int64_t n, pixels, x_row, y_row;
  float* y;
};
