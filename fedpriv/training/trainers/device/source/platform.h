// Where the kernel runs. On a GPU a block has teams of 32 lanes, a warp each. A C++ compiler builds the same source for
// the processor, where tests run it: LANES_HERE and MOST_TEAMS say
// how many threads a block has there.
#pragma once

typedef unsigned long long u64;
typedef long long i64;
typedef unsigned char byte;
static_assert(sizeof(u64) == 8, "random words are halves of 64 bits");

#if defined(__CUDACC__)

#define INSIDE __device__ __forceinline__
#define SHARED_CODE __device__ __noinline__
#define UNROLL _Pragma("unroll")
#define UNROLL_BY(n) _Pragma(n)
constexpr int LANES = 32;

INSIDE int lane() { return int(threadIdx.x) % LANES; }
INSIDE int team() { return int(threadIdx.x) / LANES; }
INSIDE int teams() { return int(blockDim.x) / LANES; }
INSIDE int block() { return int(blockIdx.x); }
INSIDE void team_sync() { __syncwarp(); }
INSIDE void block_sync() { __syncthreads(); }

// The value of one lane, in all of them.
template <class T>
INSIDE T from_lane(T value, int which) { return __shfl_sync(0xffffffffu, value, which); }

template <class T>
INSIDE T of_other_lane(T value, int distance) { return __shfl_xor_sync(0xffffffffu, value, distance); }

// A bit for each lane.
INSIDE unsigned team_ballot(bool mine) { return __ballot_sync(0xffffffffu, mine); }
INSIDE int lowest_bit(unsigned bits) { return __ffs(int(bits)) - 1; }
INSIDE int take_next(int* counter) { return atomicAdd(counter, 1); }

#else

#include <pthread.h>

#include <cmath>
#define INSIDE inline
#define SHARED_CODE inline
#define UNROLL
#define UNROLL_BY(n)
#ifndef LANES_HERE
#define LANES_HERE 1
#endif
constexpr int LANES = LANES_HERE;

namespace {  // a process may load several libraries of this source

INSIDE int teams() { return MOST_TEAMS; }
INSIDE int block() { return 0; }

#if LANES_HERE == 1 && MOST_TEAMS == 1

INSIDE int lane() { return 0; }
INSIDE int team() { return 0; }
INSIDE void team_sync() {}
INSIDE void block_sync() {}

#else

thread_local int here = 0;
pthread_barrier_t whole_block, whole_team[MOST_TEAMS];
INSIDE int lane() { return here % LANES; }
INSIDE int team() { return here / LANES; }
INSIDE void team_sync() { pthread_barrier_wait(&whole_team[team()]); }
INSIDE void block_sync() { pthread_barrier_wait(&whole_block); }

#endif

template <class T>
INSIDE T from_lane(T value, int which) {
  static T shown[MOST_TEAMS][LANES];
  shown[team()][lane()] = value;
  team_sync();
  const T found = shown[team()][which];
  team_sync();
  return found;
}

template <class T>
INSIDE T of_other_lane(T value, int distance) {
  static T shown[MOST_TEAMS][LANES];
  shown[team()][lane()] = value;
  team_sync();
  const T found = shown[team()][lane() ^ distance];
  team_sync();
  return found;
}

INSIDE unsigned team_ballot(bool mine) {
  unsigned bits = mine ? 1u << lane() : 0;
  for (int distance = LANES / 2; distance; distance /= 2) bits |= of_other_lane(bits, distance);
  return bits;
}

INSIDE int lowest_bit(unsigned bits) { return __builtin_ctz(bits); }
INSIDE int take_next(int* counter) { return (*counter)++; }

}  // namespace

#endif

// The sums, or the largest, of all lanes' numbers, in all of them; in an order that never changes.
template <int R>
INSIDE void team_sums(float (&values)[R]) {
  UNROLL
  for (int distance = LANES / 2; distance; distance /= 2) {
    UNROLL
    for (int r = 0; r < R; ++r) values[r] += of_other_lane(values[r], distance);
  }
}

INSIDE float team_sum(float value) {
  float values[1] = {value};
  team_sums(values);
  return values[0];
}

INSIDE float team_max(float value) {
  for (int distance = LANES / 2; distance; distance /= 2) {
    const float other = of_other_lane(value, distance);
    value = other > value || other != other ? other : value;
  }
  return value;
}

// 1 / the square root.
INSIDE float inverse_root(float x) {
#if defined(__CUDACC__)
  return rsqrtf(x);
#else
  return 1 / sqrtf(x);
#endif
}

// Four numbers that lie at a multiple of 16 bytes, for one load.
struct alignas(16) Four {
  float at[4];
};

INSIDE Four four_at(const float* place) { return *reinterpret_cast<const Four*>(place); }
