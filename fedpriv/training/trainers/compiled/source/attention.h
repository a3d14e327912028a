// Layers of transformers, on sequences: rows of (steps, padded(features)).
#pragma once
#include <algorithm>
#include <cmath>

#include "network.h"
#include "products.h"

// Rows of words, whole numbers as floats, become rows of their vectors. Of one record it keeps the gradients of the
// words that it has: all others' are zero.
class Embedding final : public Layer {
 public:
  Embedding(Context& c, int64_t words, int64_t features, int64_t steps)
      : c(c), n(features), steps(steps), words(words), row(padded(n)), x_row(padded(steps)), apart(c.parameters.apart),
        weights(c.parameters.place(words * row)), sums(c.memory.take<float>(words * row)),
        y(c.memory.take<float>(c.rows * steps * row + LANES)), found(c.memory.take<int64_t>(apart ? steps : 0)),
        seen(c.memory.take<bool>(apart ? words : 0)) {
    c.gradients.need(std::max(steps * row, x_row));
    if (!y) return;
    std::fill_n(sums, words * row, 0.0f);
    if (apart) std::fill_n(seen, words, false);
  }

  float* forward(float* input, int64_t rows) override {
    x = input;
    each(rows, [&](int64_t word, int64_t at) { std::copy_n(c.parameters.weights + weights + word, row, y + at); });
    return y;
  }

  // One sum for each word: adding every step to the weights would round each to the weights' precision.
  float* backward(float* g, int64_t rows) override {
    if (apart) forget();
    each(rows, [&](int64_t word, int64_t at) { add(sums + word, g + at); });
    if (apart) return find(), g;
    each(rows, [&](int64_t word, int64_t) {
      add(c.parameters.target + weights + word, sums + word);
      std::fill_n(sums + word, row, 0.0f);  // the word may come again
    });
    return g;
  }

  void unpack(const float* own, float*& flat) const override {
    for (int64_t i = 0; i < words; ++i) flat = std::copy_n(own + weights + i * row, n, flat);
  }

  bool keeps_gradient() const override { return apart; }

  double square() const override {
    doubles squares{};
    each_found([&](int64_t at, vec own) { squares += exact(own) * exact(own); });
    return total(squares);
  }

  void add_gradient(double factor, double* sum) override {
    sum += weights;
    each_found([&](int64_t at, vec own) { store(sum + at, load<doubles>(sum + at) + factor * exact(own)); });
  }

 private:
  void add(float* to, const float* from) const {
    for (int64_t j = 0; j < row; j += LANES) store(to + j, load(to + j) + load(from + j));
  }

  // use(where a word's vector is, where that of a step is)
  template <class Use>
  void each(int64_t rows, Use use) const {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t t = 0; t < steps; ++t) use(int64_t(x[r * x_row + t]) * row, (r * steps + t) * row);
  }

  // The record's words, once each.
  void find() {
    each(1, [&](int64_t word, int64_t) {
      if (!seen[word / row]) found[count++] = word;
      seen[word / row] = true;
    });
  }

  // Clears the sums of the record before.
  void forget() {
    while (count > 0) {
      const int64_t word = found[--count];
      std::fill_n(sums + word, row, 0.0f);
      seen[word / row] = false;
    }
  }

  // use(where a vector of numbers is, the vector) of the words' sums, without what is in the padding.
  template <class Use>
  void each_found(Use use) const {
    for (int64_t i = 0; i < count; ++i)
      for (int64_t j = 0; j < row; j += LANES) use(found[i] + j, first(n - j, load(sums + found[i] + j)));
  }

  Context& c;
  const int64_t n, steps, words, row, x_row;
  const bool apart;
  const int64_t weights;
  float *sums, *x = nullptr, *y;
  int64_t *found, count = 0;
  bool* seen;
};

// Adds a vector of each step's own.
class Positions final : public Layer {
 public:
  Positions(Context& c, int64_t features, int64_t steps)
      : c(c), n(features), steps(steps), row(padded(n)), size(steps * row), weights(c.parameters.place(size)),
        y(c.memory.take<float>(c.rows * size + LANES)) {
    c.gradients.need(size);
  }

  float* forward(float* x, int64_t rows) override {
    const float* w = c.parameters.weights + weights;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < size; i += LANES) store(y + r * size + i, load(x + r * size + i) + load(w + i));
    return y;
  }

  float* backward(float* g, int64_t rows) override {
    add_rows(g, rows, size, c.parameters.target + weights);
    return g;
  }

  void unpack(const float* own, float*& flat) const override {
    for (int64_t t = 0; t < steps; ++t) flat = std::copy_n(own + weights + t * row, n, flat);
  }

 private:
  Context& c;
  const int64_t n, steps, row, size, weights;
  float* y;
};

// softmax(Q K^T / sqrt(width)) V of each head, where a step's Q, K and V lie side by side.
class Attention final : public Layer {
 public:
  Attention(Context& c, int64_t features, int64_t heads, int64_t steps)
      : c(c), n(features), heads(heads), steps(steps), width(n / heads), part(padded(width)), line(padded(steps)),
        x_row(padded(3 * n)), row(padded(n)), scale(1 / std::sqrt(float(width))),
        y(c.memory.take<float>(c.rows * steps * row + LANES)),
        shares(c.memory.take<float>(c.rows * heads * steps * line)), d_scores(c.memory.take<float>(steps * line)),
        turned(c.memory.take<float>(part * line)) {
    c.gradients.need(steps * std::max(x_row, row));
    for (float*& own : parts) own = c.memory.take<float>(line * part);
    for (float*& own : results) own = c.memory.take<float>(line * part);
    if (!y) return;
    std::fill_n(y, c.rows * steps * row + LANES, 0.0f);
    for (float* own : parts) std::fill_n(own, line * part, 0.0f);
  }

  float* forward(float* input, int64_t rows) override {
    x = input;
    each(rows, [&](int64_t r, int64_t head, float* share) {
      read(r, head);
      const float *q = parts[0], *k = parts[1], *v = parts[2];
      transpose(k, steps, width, turned);
      product(Plain{q, part}, steps, width, turned, line, line, share, line, Set{});
      for (int64_t i = 0; i < steps; ++i) softmax(share + i * line);
      product(Plain{share, line}, steps, steps, v, part, part, results[0], part, Set{});
      for (int64_t i = 0; i < steps; ++i)
        std::copy_n(results[0] + i * part, width, y + (r * steps + i) * row + head * width);
    });
    return y;
  }

  float* backward(float* g, int64_t rows) override {
    float* below = c.gradients.other(g);
    std::fill_n(below, rows * steps * x_row, 0.0f);
    each(rows, [&](int64_t r, int64_t head, float* share) {
      read(r, head);
      const float *q = parts[0], *k = parts[1], *v = parts[2];
      float* d = parts[3];
      for (int64_t i = 0; i < steps; ++i)
        std::copy_n(g + (r * steps + i) * row + head * width, width, d + i * part);
      transpose(v, steps, width, turned);
      product(Plain{d, part}, steps, width, turned, line, line, d_scores, line, Set{});
      for (int64_t i = 0; i < steps; ++i) softmax_back(share + i * line, d_scores + i * line);
      product(Plain{d_scores, line}, steps, steps, k, part, part, results[0], part, Set{});
      product(Transposed{d_scores, line}, steps, steps, q, part, part, results[1], part, Set{});
      product(Transposed{share, line}, steps, steps, d, part, part, results[2], part, Set{});
      for (int64_t which = 0; which < 3; ++which)
        for (int64_t i = 0; i < steps; ++i)
          std::copy_n(results[which] + i * part, width, below + (r * steps + i) * x_row + which * n + head * width);
    });
    return below;
  }

 private:
  // use(row, head, its shares: a line of each step's)
  template <class Use>
  void each(int64_t rows, Use use) const {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t head = 0; head < heads; ++head) use(r, head, shares + (r * heads + head) * steps * line);
  }

  // A head's Q, K and V of a row, (steps, part) each, with zeros behind.
  void read(int64_t r, int64_t head) const {
    for (int64_t which = 0; which < 3; ++which)
      for (int64_t i = 0; i < steps; ++i)
        std::copy_n(x + (r * steps + i) * x_row + which * n + head * width, width, parts[which] + i * part);
  }

  void softmax(float* scores) const {
    float most = scores[0];
    for (int64_t j = 1; j < steps; ++j) most = std::max(most, scores[j]);
    vec sum{};
    for (int64_t j = 0; j < line; j += LANES) {
      const vec e = first(steps - j, exponential(scale * (load(scores + j) - most)));
      store(scores + j, e);
      sum += e;
    }
    const float share = 1 / total(sum);
    for (int64_t j = 0; j < line; j += LANES) store(scores + j, load(scores + j) * share);
  }

  // d becomes the gradient of the scores before the scale.
  void softmax_back(const float* shares, float* d) const {
    vec sum{};
    for (int64_t j = 0; j < line; j += LANES) sum += load(shares + j) * load(d + j);
    const float mean = total(sum);
    for (int64_t j = 0; j < line; j += LANES) store(d + j, load(shares + j) * (load(d + j) - mean) * scale);
  }

  Context& c;
  const int64_t n, heads, steps, width, part, line, x_row, row;
  const float scale;
  float *x = nullptr, *y, *shares, *d_scores, *turned;
  float* parts[4];    // Q, K, V and the gradient of what they make
  float* results[3];  // what the products write
};
