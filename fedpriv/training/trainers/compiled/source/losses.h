// Gradients of the losses of fedpriv.models with respect to a network's outputs.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "vectors.h"

class Loss {
 public:
  virtual ~Loss() = default;
  // g (rows, padded(outputs)): weight times the gradient of each row's loss at outputs z, for labels[rows_of[r]].
  virtual void gradient(const float* z, const int64_t* rows_of, int64_t rows, float weight, float* g) const = 0;
};

// Cross-entropy of a softmax: p - e_label with p = e^z / sum(e^z), of z less its maximum.
class CrossEntropy final : public Loss {
 public:
  CrossEntropy(const void* labels, int64_t outputs, const float* factors)
      : labels(static_cast<const int64_t*>(labels)), m(outputs), factors(factors) {}

  void gradient(const float* z, const int64_t* rows_of, int64_t rows, float weight, float* g) const override {
    for (const int64_t row = padded(m); rows-- > 0; z += row, g += row) {
      const int64_t label = labels[*rows_of++];
      const float w = factors ? weight * factors[label] : weight;
      const float most = *std::max_element(z, z + m);
      for (int64_t j = 0; j < row; j += LANES) store(g + j, first(m - j, exponential(load(z + j) - most)));
      float sum = 0;
      for (int64_t j = 0; j < m; ++j) sum += g[j];
      for (int64_t j = 0; j < row; j += LANES) store(g + j, load(g + j) * (w / sum));
      g[label] -= w;
    }
  }

 private:
  const int64_t* labels;
  const int64_t m;
  const float* factors;
};

// Slopes of losses of one output: binary cross-entropy, half the squared error, and the likelihood of an exponential
// time with the logarithm of its hazard as output, whose labels are (event, time).
inline vec logistic(vec z, const float* y) { return 1 / (1 + exponential(-z)) - y[0]; }
inline vec squared(vec z, const float* y) { return z - y[0]; }
inline vec survival(vec z, const float* y) { return exponential(z > broadcast(8) ? broadcast(8) : z) * y[1] - y[0]; }

template <vec (*SLOPE)(vec, const float*), int NUMBERS = 1>
class OneOutput final : public Loss {
 public:
  OneOutput(const void* labels) : labels(static_cast<const float*>(labels)) {}

  void gradient(const float* z, const int64_t* rows_of, int64_t rows, float weight, float* g) const override {
    for (; rows-- > 0; z += LANES, g += LANES)
      store(g, first(1, SLOPE(load(z), labels + NUMBERS * *rows_of++) * weight));
  }

 private:
  const float* labels;
};

// Cox's partial likelihood of labels (event, time). By time, descending, row i has the loss event_i (r_i - z_i), where
// r_i is the logarithm of the sum of e^z over the rows up to i.
class Cox final : public Loss {
 public:
  Cox(const void* labels) : labels(static_cast<const float*>(labels)) {}

  void gradient(const float* z, const int64_t* rows_of, int64_t rows, float weight, float* g) const override {
    std::vector<int64_t> order(rows);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return labels[2 * rows_of[a] + 1] > labels[2 * rows_of[b] + 1];
    });
    std::vector<double> risk(rows);
    double sum = -std::numeric_limits<double>::infinity(), share = 0;
    for (int64_t i = 0; i < rows; ++i) {
      const double own = z[order[i] * LANES];
      risk[i] = sum = std::max(sum, own) + std::log1p(std::exp(-std::abs(sum - own)));
    }
    for (int64_t i = rows; i-- > 0; sum = risk[i]) {  // share: the sum over events k from i on of e^(r_i - r_k)
      const int64_t r = order[i];
      const double event = labels[2 * rows_of[r]];
      share = share * std::exp(risk[i] - sum) + event;
      store(g + r * LANES, first(1, broadcast(float(weight * (share * std::exp(z[r * LANES] - risk[i]) - event)))));
    }
  }

 private:
  const float* labels;
};
