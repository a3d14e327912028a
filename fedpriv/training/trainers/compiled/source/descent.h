// Noisy steps on batches of a silo's records, for several runs that draw the same noise.
#pragma once
#include "records.h"

extern "C" {

// A run: records x (n, features), y (n,), of which step s takes those at rows_of (steps, batch). It moves the parameters
// (size,), in the layers' order, by -rate times the mean clipped gradient and -rate deviation times what is drawn.
struct Descent {
  const float* x;
  const void* y;
  const int64_t* rows_of;
  double clip, rate, deviation;
  double *norms, *parameters;  // norms: (steps, batch), of the gradients
};

// Steps `from` to `to` of n runs. drawn: (noisy, size) standard normal numbers in torch's order, of the first of them.
struct Descents {
  const Descent* runs;
  int64_t n, from, to, batch, noisy;
  const double* drawn;
};

}  // extern "C"

class NoisyDescent final : public ClippedSum {
 public:
  using ClippedSum::ClippedSum;

  // Run after run, so that the parameters of one stay in the processor's cache.
  void take(const Descents& d) {
    const int64_t size = c.parameters.size;
    std::vector<double> noise(d.noisy * size);
    for (int64_t s = 0; s < d.noisy; ++s)
      for (int64_t i = 0; i < p.size; ++i) noise[s * size + p.places[i]] = d.drawn[s * p.size + i];
    for (const Descent* run = d.runs; run < d.runs + d.n; ++run) {
      const auto loss = loss_of(p, run->y);
      double* own = run->parameters;
      for (int64_t s = d.from; s < d.to; ++s) {
        for (int64_t i = 0; i < size; ++i) weights[i] = float(own[i]);
        add_rows(run->x, run->rows_of, s * d.batch, (s + 1) * d.batch, run->clip, run->norms, *loss);
        if (d.batch > 1)
          for (int64_t i = 0; i < size; ++i) own[i] -= run->rate * sum[i] / double(d.batch);
        else
          move(own, sum, size, run->rate, 1);
        if (s - d.from < d.noisy) move(own, &noise[(s - d.from) * size], size, run->rate, run->deviation);
      }
    }
  }

 private:
#if defined(__GNUC__) && !defined(__clang__)  // each operation is rounded, as in numpy
#define ROUNDED __attribute__((optimize("fp-contract=off")))
#else
#define ROUNDED
#endif
  ROUNDED static void move(double* own, const double* along, int64_t n, double rate, double scale) {
    for (int64_t i = 0; i < n; ++i) {
      const double step = rate * (along[i] * scale);
      own[i] -= step;
    }
  }
};
