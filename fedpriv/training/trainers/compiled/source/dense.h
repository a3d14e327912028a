// Layers on features (rows, padded(width)).
#pragma once
#include "network.h"
#include "products.h"

// y = x W^T + b. The weights are kept transposed, (inputs, padded(outputs)), so that a row of them is whole vectors.
class Dense final : public Layer {
 public:
  Dense(Context& c, int64_t inputs, int64_t outputs, bool biased, bool lowest)
      : c(c), n(inputs), m(outputs), n_row(padded(n)), m_row(padded(m)), biased(biased), lowest(lowest),
        weights(c.parameters.place(n * m_row)), bias(c.parameters.place(m)), y(c.memory.take<float>(c.rows * m_row)),
        turned(c.memory.take<float>(m * n_row)), x_rows(multiples(c.memory, c.rows, n_row)),
        g_rows(multiples(c.memory, c.rows, m_row)), columns(multiples(c.memory, std::max(n, m), 1)) {
    c.gradients.need(std::max(n_row, m_row));
  }

  float* forward(float* input, int64_t rows) override {
    x = input;
    const float* w = c.parameters.weights;
    product({x, x_rows, columns, n}, rows, w + weights, m_row, m_row, y, m_row, SetPlus{w + bias});
    return y;
  }

  // dx = g W, dW^T = x^T g, db = the sum of g's rows. dx first: the weights may move.
  float* backward(float* g, int64_t rows) override {
    float *below = c.gradients.other(g), *target = c.parameters.target;
    if (!lowest && rows <= FEW_ROWS) {
      dot_products(g, rows, c.parameters.weights + weights, n, m_row, below);
    } else if (!lowest) {
      transpose(c.parameters.weights + weights, n, m, turned);
      product({g, g_rows, columns, m}, rows, turned, n_row, n_row, below, n_row, Set{});
    }
    product({x, columns, x_rows, rows}, n, g, m_row, m_row, target + weights, m_row, Add{c.parameters.scale});
    if (biased) add_rows(g, rows, m_row, target + bias, c.parameters.scale);
    return below;
  }

  void pack(const float*& flat, float* own) const override {
    for (int64_t o = 0; o < m; ++o)
      for (int64_t i = 0; i < n; ++i) own[weights + i * m_row + o] = *flat++;
    for (int64_t o = 0; biased && o < m; ++o) own[bias + o] = *flat++;
  }

  void unpack(const float* own, float*& flat) const override {
    transpose(own + weights, n, m, turned);
    for (int64_t o = 0; o < m; ++o) flat = std::copy_n(turned + o * n_row, n, flat);
    if (biased) flat = std::copy_n(own + bias, m, flat);
  }

 private:
  static constexpr int64_t FEW_ROWS = 2;  // up to which dot products are faster; measured
  Context& c;
  const int64_t n, m, n_row, m_row;
  const bool biased, lowest;
  const int64_t weights, bias;
  float *x = nullptr, *y, *turned;
  const int64_t *x_rows, *g_rows, *columns;
};

// y = max(x, 0), in place; NaN stays. The gradient passes where y > 0.
class ReLU final : public Layer {
 public:
  ReLU(Context& c, int64_t numbers) : n(numbers) { c.gradients.need(n); }

  float* forward(float* x, int64_t rows) override {
    y = x;
    for (int64_t i = 0; i < rows * n; i += LANES) {
      const vec v = load(y + i);
      store(y + i, v < vec{} ? vec{} : v);
    }
    return y;
  }

  float* backward(float* g, int64_t rows) override {
    for (int64_t i = 0; i < rows * n; i += LANES) store(g + i, load(y + i) <= vec{} ? vec{} : load(g + i));
    return g;
  }

 private:
  const int64_t n;
  float* y = nullptr;
};

// GroupNorm with one group: y = gamma n + beta with n = (x - mean) / sqrt(variance + epsilon), each row by itself.
class GroupNorm final : public Layer {
 public:
  GroupNorm(Context& c, int64_t features, float epsilon, bool affine)
      : c(c), m(features), row(padded(m)), epsilon(epsilon), affine(affine), gamma(c.parameters.place(m)),
        beta(c.parameters.place(m)), inside(c.memory.take<float>(row)), zeros(c.memory.take<float>(row)),
        dgamma(c.memory.take<float>(row)), dbeta(c.memory.take<float>(row)),
        normal(c.memory.take<float>(c.rows * row)), y(c.memory.take<float>(c.rows * row)),
        rdeviation(c.memory.take<float>(c.rows)) {
    c.gradients.need(row);
    if (!inside) return;
    std::fill(std::fill_n(inside, m, 1.0f), inside + row, 0.0f);
    std::fill_n(zeros, row, 0.0f);
  }

  float* forward(float* x, int64_t rows) override {
    const float* scales = affine ? c.parameters.weights + gamma : inside;
    const float* shifts = affine ? c.parameters.weights + beta : zeros;
    for (int64_t r = 0; r < rows; ++r, x += row) {
      vec sum{}, squares{};
      for (int64_t j = 0; j < row; j += LANES) sum += load(x + j) * load(inside + j);
      const float mean = total(sum) / float(m);
      for (int64_t j = 0; j < row; j += LANES) {
        const vec centred = (load(x + j) - mean) * load(inside + j);
        squares += centred * centred;
      }
      rdeviation[r] = 1 / __builtin_sqrtf(total(squares) / float(m) + epsilon);
      for (int64_t j = 0; j < row; j += LANES) {
        const vec n = (load(x + j) - mean) * (load(inside + j) * rdeviation[r]);
        store(normal + r * row + j, n);
        store(y + r * row + j, load(scales + j) * n + load(shifts + j));
      }
    }
    return y;
  }

  // dbeta and dgamma are the sums of g's and of g n's rows; with h = gamma g, the gradient of n,
  // dx = (h - mean(h) - n mean(h n)) / sqrt(variance + epsilon).
  float* backward(float* g, int64_t rows) override {
    if (affine) sum_rows(g, rows);
    const float* scales = affine ? c.parameters.weights + gamma : inside;
    for (int64_t r = 0; r < rows; ++r) {
      float *dy = g + r * row, *n = normal + r * row;
      vec sum{}, products{};
      for (int64_t j = 0; j < row; j += LANES) {
        const vec h = load(scales + j) * load(dy + j);
        sum += h * load(inside + j);
        products += h * load(n + j);
      }
      const float mean = total(sum) / float(m), mean_product = total(products) / float(m);
      for (int64_t j = 0; j < row; j += LANES) {
        const vec dn = load(scales + j) * load(dy + j) - mean - load(n + j) * mean_product;
        store(dy + j, dn * (load(inside + j) * rdeviation[r]));
      }
    }
    for (int64_t j = 0; affine && j < row; j += LANES) {
      Add{c.parameters.scale}(c.parameters.target + gamma + j, load(dgamma + j), j);
      Add{c.parameters.scale}(c.parameters.target + beta + j, load(dbeta + j), j);
    }
    return g;
  }

  void pack(const float*& flat, float* own) const override {
    if (!affine) return;
    std::copy_n(flat, m, own + gamma);
    std::copy_n(flat + m, m, own + beta);
    flat += 2 * m;
  }

  void unpack(const float* own, float*& flat) const override {
    if (!affine) return;
    std::copy_n(own + gamma, m, flat);
    std::copy_n(own + beta, m, flat + m);
    flat += 2 * m;
  }

 private:
  void sum_rows(const float* g, int64_t rows) const {
    for (int64_t j = 0; j < row; j += LANES) {
      vec sum{}, products{};
      for (int64_t i = j; i < rows * row; i += row) {
        sum += load(g + i);
        products += load(g + i) * load(normal + i);
      }
      store(dbeta + j, sum);
      store(dgamma + j, products);
    }
  }

  Context& c;
  const int64_t m, row;
  const float epsilon;
  const bool affine;
  const int64_t gamma, beta;
  // inside: one for every feature, zero for the padding.
  float *inside, *zeros, *dgamma, *dbeta, *normal, *y, *rdeviation;
};
