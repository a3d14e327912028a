// Layers on features (rows, padded(width)).
#pragma once
#include <memory>

#include "network.h"
#include "products.h"

// y = x W^T + b. The weights are kept transposed, (padded(inputs), padded(outputs)), so that a row of them is whole
// vectors, and so is a column.
class Dense final : public Layer {
 public:
  Dense(Context& c, int64_t inputs, int64_t outputs, bool biased, bool lowest)
      : c(c), n(inputs), m(outputs), n_row(padded(n)), m_row(padded(m)), biased(biased), lowest(lowest),
        apart(c.parameters.apart && c.rows == 1), weights(c.parameters.place(n_row * m_row)),
        bias(c.parameters.place(m)), read(c.memory.take<double>(apart ? n_row : 0)),
        from_above(c.memory.take<double>(apart ? m_row : 0)),
        reads(c.memory.take<double>(apart ? MOST_WAITING * n_row : 0)),
        aboves(c.memory.take<double>(apart ? MOST_WAITING * m_row : 0)), y(c.memory.take<float>(c.rows * m_row)),
        turned(c.memory.take<float>(m_row * n_row)) {
    c.gradients.need(std::max(n_row, m_row));
  }

  float* forward(float* input, int64_t rows) override {
    x = input;
    const float* w = c.parameters.weights;
    product(Plain{x, n_row}, rows, n, w + weights, m_row, m_row, y, m_row, SetPlus{w + bias});
    return y;
  }

  // dx = g W, dW^T = x^T g, db = the sum of g's rows. dx first: the weights may move.
  float* backward(float* g, int64_t rows) override {
    float *below = c.gradients.other(g), *target = c.parameters.target;
    if (!lowest && rows <= FEW_ROWS) {
      dot_products(g, rows, c.parameters.weights + weights, n, m_row, below);
    } else if (!lowest) {
      transpose(c.parameters.weights + weights, n, m, turned);
      product(Plain{g, m_row}, rows, m, turned, n_row, n_row, below, n_row, Set{});
    }
    if (apart) return keep(g), below;
    product(Transposed{x, n_row}, n, rows, g, m_row, m_row, target + weights, m_row, Add{});
    if (biased) add_rows(g, rows, m_row, target + bias);
    return below;
  }

  bool keeps_gradient() const override { return apart; }

  double square() const override {
    doubles a{}, g{};
    for (int64_t i = 0; i < n_row; i += LANES) a += load<doubles>(read + i) * load<doubles>(read + i);
    for (int64_t j = 0; j < m_row; j += LANES) g += load<doubles>(from_above + j) * load<doubles>(from_above + j);
    return total(g) * (total(a) + biased);
  }

  // Several records' factors wait, so that each number of the sum is read and written once for all of them. It adds
  // them in the order of the records, so that its bits are those of adding one after another.
  void add_gradient(double factor, double* sum) override {
    for (int64_t i = 0; i < n; ++i) reads[waiting * n_row + i] = factor * read[i];
    std::copy_n(from_above, m_row, aboves + waiting * m_row);
    factors[waiting] = factor;
    if (++waiting == MOST_WAITING) add_waiting(sum);
  }

  void add_waiting(double* sum) override {
    for (int64_t i = 0; i < n; ++i) add_aboves(reads + i, n_row, sum + weights + i * m_row);
    if (biased) add_aboves(factors, 1, sum + bias);
    waiting = 0;
  }

  void unpack(const float* own, float*& flat) const override {
    transpose(own + weights, n, m, turned);
    for (int64_t o = 0; o < m; ++o) flat = std::copy_n(turned + o * n_row, n, flat);
    if (biased) flat = std::copy_n(own + bias, m, flat);
  }

 private:
  static constexpr int64_t FEW_ROWS = 7;  // up to which dot products are faster; measured
  static constexpr int64_t MOST_WAITING = 8;

  void keep(const float* g) {
    for (int64_t i = 0; i < n_row; i += LANES) store(read + i, exact(first(n - i, load(x + i))));
    for (int64_t j = 0; j < m_row; j += LANES) store(from_above + j, exact(first(m - j, load(g + j))));
  }

  // Adds what waits, each record's times its factor; these lie `apart_by` apart.
  void add_aboves(const double* factor, int64_t apart_by, double* to) const {
    for (int64_t j = 0; j < m_row; j += LANES) {
      doubles all = load<doubles>(to + j);
      for (int64_t r = 0; r < waiting; ++r) all += factor[r * apart_by] * load<doubles>(aboves + r * m_row + j);
      store(to + j, all);
    }
  }

  Context& c;
  const int64_t n, m, n_row, m_row;
  const bool biased, lowest, apart;
  const int64_t weights, bias;
  double *read, *from_above;
  double *reads, *aboves, factors[MOST_WAITING];  // of the records that wait; `reads` times their factors
  int64_t waiting = 0;
  float *x = nullptr, *y, *turned;
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
// RECTIFIED: x is max(input, 0), NaN stays, and the gradient passes where it is not zero: a ReLU without passes of its
// own. VECTORS: those of a row, known to the compiler; 0: any number.
template <bool RECTIFIED, int VECTORS>
class GroupNorm final : public Layer {
 public:
  GroupNorm(Context& c, int64_t features, float epsilon, bool affine)
      : c(c), m(features), share(1 / float(m)), epsilon(epsilon), affine(affine), gamma(c.parameters.place(m)),
        beta(c.parameters.place(m)), normal(c.memory.take<float>(c.rows * row())),
        y(c.memory.take<float>(c.rows * row())), mean(c.memory.take<float>(c.rows + LANES)),
        mean_product(c.memory.take<float>(c.rows + LANES)), rdeviation(c.memory.take<float>(c.rows + LANES)) {
    c.gradients.need(row());
  }

  float* forward(float* x, int64_t rows) override {
    input = x;
    by_rows(rows, [=](auto count, int64_t r) {
      constexpr int R = decltype(count)::value;
      vec sum[R] = {};
      for (int64_t j = 0; j < row(); j += LANES)
#pragma GCC unroll 8
        for (int i = 0; i < R; ++i) sum[i] += first(m - j, rectified(r + i, j));
      store(mean + r, sums(sum) * share);
    });
    by_rows(rows, [=](auto count, int64_t r) {
      constexpr int R = decltype(count)::value;
      vec squares[R] = {};
      for (int64_t j = 0; j < row(); j += LANES)
#pragma GCC unroll 8
        for (int i = 0; i < R; ++i) squares[i] += centred(r + i, j) * centred(r + i, j);
      store(rdeviation + r, 1 / square_root(sums(squares) * share + epsilon));
    });
    for (int64_t strip = 0; strip < row(); strip += STRIP * LANES) {
      vec scales[STRIP], shifts[STRIP];
      in_strip(strip, [&](int v, int64_t j) {
        scales[v] = scale(j);
        shifts[v] = affine ? load(c.parameters.weights + beta + j) : vec{};
      });
      for (int64_t r = 0; r < rows; ++r)
        in_strip(strip, [&](int v, int64_t j) {
          const vec n = centred(r, j) * rdeviation[r];
          store(normal + r * row() + j, n);
          store(y + r * row() + j, scales[v] * n + shifts[v]);
        });
    }
    return y;
  }

  // dbeta and dgamma are the sums of g's and of g n's rows; with h = gamma g, the gradient of n,
  // dx = (h - mean(h) - n mean(h n)) / sqrt(variance + epsilon).
  float* backward(float* g, int64_t rows) override {
    by_rows(rows, [=](auto count, int64_t r) {
      constexpr int R = decltype(count)::value;
      vec sum[R] = {}, products[R] = {};
      for (int64_t j = 0; j < row(); j += LANES)
#pragma GCC unroll 8
        for (int i = 0; i < R; ++i) {
          const vec h = scale(j) * first(m - j, load(g + (r + i) * row() + j));
          sum[i] += h;
          products[i] += h * load(normal + (r + i) * row() + j);
        }
      store(mean + r, sums(sum) * share);
      store(mean_product + r, sums(products) * share);
    });
    for (int64_t strip = 0; strip < row(); strip += STRIP * LANES) {
      vec scales[STRIP], dgamma[STRIP] = {}, dbeta[STRIP] = {};
      in_strip(strip, [&](int v, int64_t j) { scales[v] = scale(j); });
      for (int64_t r = 0; r < rows; ++r)
        in_strip(strip, [&](int v, int64_t j) {
          const vec dy = first(m - j, load(g + r * row() + j)), n = load(normal + r * row() + j);
          dgamma[v] += dy * n, dbeta[v] += dy;
          vec dx = (scales[v] * dy - mean[r] - n * mean_product[r]) * rdeviation[r];
          if constexpr (RECTIFIED) dx = load(input + r * row() + j) <= vec{} ? vec{} : dx;
          store(g + r * row() + j, first(m - j, dx));
        });
      if (!affine) continue;
      in_strip(strip, [&](int v, int64_t j) {
        Add{}(c.parameters.target + gamma + j, dgamma[v], j);
        Add{}(c.parameters.target + beta + j, dbeta[v], j);
      });
    }
    return g;
  }

  void unpack(const float* own, float*& flat) const override {
    for (int64_t from : {gamma, beta})
      if (affine) flat = std::copy_n(own + from, m, flat);
  }

 private:
  // use(Count<rows>, first row) for groups of up to R rows, whose sums cost little more than one row's.
  template <int R = LANES < 8 ? LANES : 8, class Use>
  static void by_rows(int64_t rows, const Use& use, int64_t r = 0) {
    for (; r + R <= rows; r += R) use(Count<R>{}, r);
    if constexpr (R > 1)
      if (r < rows) by_rows<R / 2>(rows, use, r);
  }

  static constexpr int STRIP = VECTORS > 0 && VECTORS <= 4 ? VECTORS : 1;  // vectors of a row that go together

  // use(0 to STRIP - 1, column) for the vectors of the strip that begins at a column.
  template <class Use>
  static void in_strip(int64_t column, const Use& use) {
#pragma GCC unroll 4
    for (int v = 0; v < STRIP; ++v) use(v, column + v * LANES);
  }

  int64_t row() const { return VECTORS ? VECTORS * LANES : padded(m); }
  vec scale(int64_t j) const { return affine ? load(c.parameters.weights + gamma + j) : broadcast(1); }
  vec centred(int64_t r, int64_t j) const { return first(m - j, rectified(r, j) - mean[r]); }
  vec rectified(int64_t r, int64_t j) const {
    const vec v = load(input + r * row() + j);
    if constexpr (!RECTIFIED) return v;
    return v < vec{} ? vec{} : v;
  }

  Context& c;
  const int64_t m;
  const float share, epsilon;
  const bool affine;
  const int64_t gamma, beta;
  float *input = nullptr, *normal, *y, *mean, *mean_product, *rdeviation;
};

template <bool RECTIFIED>
std::unique_ptr<Layer> group_norm(Context& c, int64_t features, float epsilon, bool affine) {
  return known(padded(features) / LANES, [&](auto vectors) -> std::unique_ptr<Layer> {
    return std::make_unique<GroupNorm<RECTIFIED, vectors>>(c, features, epsilon, affine);
  });
}
