// Gradients of the losses of fedpriv.tasks with respect to a network's outputs.
#pragma once
#include <algorithm>

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
  CrossEntropy(const void* labels, int64_t outputs) : labels(static_cast<const int64_t*>(labels)), m(outputs) {}

  void gradient(const float* z, const int64_t* rows_of, int64_t rows, float weight, float* g) const override {
    for (const int64_t row = padded(m); rows-- > 0; z += row, g += row) {
      const float most = *std::max_element(z, z + m);
      for (int64_t j = 0; j < row; j += LANES) store(g + j, first(m - j, exponential(load(z + j) - most)));
      float sum = 0;
      for (int64_t j = 0; j < m; ++j) sum += g[j];
      for (int64_t j = 0; j < row; j += LANES) store(g + j, load(g + j) * (weight / sum));
      g[labels[*rows_of++]] -= weight;
    }
  }

 private:
  const int64_t* labels;
  const int64_t m;
};

// Binary cross-entropy of one logit: sigmoid(z) - y.
class Logistic final : public Loss {
 public:
  Logistic(const void* labels) : labels(static_cast<const float*>(labels)) {}

  void gradient(const float* z, const int64_t* rows_of, int64_t rows, float weight, float* g) const override {
    for (; rows-- > 0; z += LANES, g += LANES) {
      const vec sigmoid = 1 / (1 + exponential(-load(z)));
      store(g, first(1, (sigmoid - labels[*rows_of++]) * weight));
    }
  }

 private:
  const float* labels;
};
