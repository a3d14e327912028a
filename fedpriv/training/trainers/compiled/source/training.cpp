// What Python calls.
#include "denormals.h"
#include "descent.h"
#include "records.h"
#include "users.h"

extern "C" {

// Bytes of memory that `train` needs.
int64_t workspace(const Problem* p) { return Trainer(*p, nullptr).bytes() + CACHE_LINE; }

// memory: as for `train`.
int64_t find_places(const Problem* p, int32_t* places, char* memory) {
  return Chain(*p, aligned(memory), false).find_places(places);
}

// Numbers in torch's order (n,) become numbers in the layers'.
void pack(const int32_t* places, int64_t n, const float* flat, float* own) {
  for (int64_t i = 0; i < n; ++i) own[places[i]] = flat[i];
}

// Trains users of n silos that no other call has taken, until there are none. memory: as many bytes as `workspace`
// says, not shared with another call.
void train(const Problem* p, const Users* u, int64_t n, char* memory) {
  const DenormalsAreZero here;
  Trainer trainer(*p, aligned(memory));
  for (; n-- > 0; ++u) {
    const auto loss = loss_of(*p, u->y);
    for (int64_t j; (j = (*u->next)++) < u->k;) trainer.train(*u, j, *loss);
  }
}

// Bytes of memory that `sum_clipped` needs.
int64_t workspace_of_sum(const Problem* p) { return ClippedSum(*p, nullptr).bytes() + CACHE_LINE; }

// The sum of the records' clipped gradients, and their norms. memory: as for `train`.
void sum_clipped(const Problem* p, const Records* r, char* memory) {
  const DenormalsAreZero here;
  ClippedSum sum(*p, aligned(memory));
  sum.add(*r, *loss_of(*p, r->y));
}

// memory: as for `sum_clipped`.
void descend(const Problem* p, const Descents* d, char* memory) {
  const DenormalsAreZero here;
  NoisyDescent(*p, aligned(memory)).take(*d);
}

// What tests compare with numpy's.
void draw(uint64_t key, uint64_t name, int64_t row, int64_t rows, int64_t features, int32_t* words) {
  draw_words(key, name, row, rows, features, words);
}

void order(uint64_t key, int64_t n, uint64_t* numbers, int64_t* places, int64_t* ends) {
  shuffle(key, n, numbers, places, ends);
}

int64_t lanes() { return LANES; }
}
