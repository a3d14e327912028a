// What layers share: memory, the parameters of the user that trains, and its place in its training.
#pragma once
#include <algorithm>
#include <utility>

#include "draws.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

constexpr uintptr_t CACHE_LINE = 64;
inline char* aligned(char* memory) { return memory + -reinterpret_cast<uintptr_t>(memory) % CACHE_LINE; }

// Cuts the caller's memory into pieces that begin at whole vectors. Without memory it only counts.
struct Workspace {
  char* memory;
  int64_t used = 0;
  template <class T>
  T* take(int64_t n) {
    const int64_t start = used, bytes = n * int64_t(sizeof(T));
    used += (bytes + 63) / 64 * 64;
#if defined(__SANITIZE_ADDRESS__)  // nobody may touch what lies between two pieces
    used += 64;
    if (memory) {
      __asan_unpoison_memory_region(memory + start, bytes);
      __asan_poison_memory_region(memory + start + bytes, used - start - bytes);
    }
#endif
    return memory ? reinterpret_cast<T*>(memory + start) : nullptr;
  }
};

// One user's numbers in the layers' own order (rows padded to whole vectors), all `size` of them.
// weights: its parameters. Gradients are added to `target`: the gradient, or, of -lr times the loss, the parameters.
// apart: whether each record's gradient is wanted by itself.
struct Parameters {
  int64_t size = 0;
  bool apart = false;
  const float* weights = nullptr;
  float* target = nullptr;
  // Where the next n numbers will be.
  int64_t place(int64_t n) { return std::exchange(size, size + padded(n)); }
};

// The user's key and the batch it is at: epoch, place in the epoch, and the first row that is computed now. Or a record's
// key, and the names of what each Mask draws.
struct Moment {
  uint64_t key = 0;
  int64_t epoch = 0, place = 0, row = 0;
  const uint64_t* names = nullptr;
};

// Gradients of activations: a layer reads one buffer and writes the other.
struct Gradients {
  int64_t width = 0;  // numbers of a record, at most
  int64_t steps = 1;  // of a record, each of which the layer that is made treats as a row
  float *one = nullptr, *two = nullptr;
  void need(int64_t n) { width = std::max(width, steps * n); }
  float* other(const float* g) const { return g == one ? two : one; }
  // Makes the padding of rows of n numbers zero, for layers that write n numbers alone: else it holds what came before.
  static void clear_padding(float* g, int64_t rows, int64_t n) {
    for (int64_t r = 0; r < rows; ++r) std::fill(g + r * padded(n) + n, g + (r + 1) * padded(n), 0.0f);
  }
};

struct Context {
  Workspace memory;
  int64_t rows;  // at once, at most
  Parameters parameters;
  Moment moment;
  Gradients gradients;
};

// A layer of one user's network; activations are (rows, numbers of a record in whole vectors). What is in the padding
// never reaches a number that counts: of activations nobody reads it, and of their gradients it is zero.
class Layer {
 public:
  virtual ~Layer() = default;
  // y for x (rows, ...); x may be overwritten by layers that work in place, and is read again by `backward`.
  virtual float* forward(float* x, int64_t rows) = 0;
  // Adds the parameters' gradients, given y's; returns x's.
  virtual float* backward(float* g, int64_t rows) = 0;
  // Whether it keeps the gradient of one record itself, mostly as factors, and adds nothing to the target.
  virtual bool keeps_gradient() const { return false; }
  // Then: the square of the gradient's norm, and the gradient times `factor`, added to all parameters' sum.
  virtual double square() const { return 0; }
  // It may wait with that until `add_waiting`.
  virtual void add_gradient(double factor, double* sum) {}
  virtual void add_waiting(double* sum) {}
  // Its parameters in torch's order, from where `flat` is on.
  virtual void unpack(const float* own, float*& flat) const {}
};
