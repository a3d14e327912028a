// Noisy steps on batches of a silo's records, for several runs that draw the same noise.
#pragma once
#include "records.h"

extern "C" {

// A run: records x (n, features), y (n,) with the keys (n,) of their dropout. Step s takes the records at rows_of, from
// ends[s - 1] (0 before the first) to ends[s]. It moves the parameters w (size,), in the layers' order, by
// -rates[s] (sum + pull (w - anchor)), where the sum of clipped gradients has noise of this deviation.
// norms: of the gradients, as long as rows_of.
struct Descent {
  const float* x;
  const void* y;
  const uint64_t* keys;
  const int64_t *rows_of, *ends;
  const double *rates, *anchor;
  double clip, deviation, pull;
  double *norms, *parameters;
};

// The next steps of n runs. noise: (noisy, size) standard normal numbers in torch's order, of the first of them.
// names: (steps, places), of what each Mask draws. piece: see `Records`.
struct Descents {
  const Descent* runs;
  int64_t n, steps, noisy, places, piece;
  const double* noise;
  const uint64_t* names;
};

}  // extern "C"

#if defined(__GNUC__) && !defined(__clang__)  // each operation is rounded, as in numpy
#define ROUNDED __attribute__((optimize("fp-contract=off")))
#else
#define ROUNDED
#endif

class NoisyDescent final : public ClippedSum {
 public:
  using ClippedSum::ClippedSum;

  // Run after run, so that the parameters of one stay in the processor's cache.
  void take(const Descents& d) {
    std::vector<double> noise(d.noisy * c.parameters.size);
    for (int64_t s = 0; s < d.noisy; ++s)
      for (int64_t i = 0; i < p.size; ++i) noise[s * c.parameters.size + p.places[i]] = d.noise[s * p.size + i];
    for (const Descent* run = d.runs; run < d.runs + d.n; ++run) {
      const auto loss = loss_of(p, run->y);
      for (int64_t s = 0, from = 0; s < d.steps; from = run->ends[s++]) {
        for (int64_t i = 0; i < c.parameters.size; ++i) weights[i] = float(run->parameters[i]);
        c.moment.names = d.names + s * d.places;
        add_rows(run->x, run->keys, run->rows_of, from, run->ends[s], d.piece, run->clip, run->norms, *loss);
        move(*run, run->rates[s], s < d.noisy && run->deviation ? &noise[s * c.parameters.size] : nullptr);
      }
    }
  }

 private:
  ROUNDED void move(const Descent& run, double rate, const double* noise) {
    double* own = run.parameters;
    for (int64_t i = 0; i < c.parameters.size; ++i) {
      double along = sum[i];
      if (noise) {
        const double drawn = noise[i] * run.deviation;
        along += drawn;
      }
      if (run.pull) {
        const double pulled = run.pull * (own[i] - run.anchor[i]);
        along += pulled;
      }
      const double step = rate * along;
      own[i] -= step;
    }
  }
};
