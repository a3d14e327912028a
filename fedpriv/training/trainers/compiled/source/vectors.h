// Vectors of floats, as wide as the processor's registers, by the compilers' portable extensions (GCC and clang).
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>

// LANES: floats of a vector. A tile of a matrix product, TILE_ROWS x TILE_VECTORS sums, leaves registers for its
// factors; so does one of a convolution, PATCH_ROWS x PATCH_VECTORS.
#if defined(__AVX512F__)
#include <immintrin.h>
constexpr int LANES = 16, TILE_ROWS = 10, TILE_VECTORS = 2;
constexpr int PATCH_ROWS = 5, PATCH_VECTORS = 4;
#elif defined(__AVX2__)
constexpr int LANES = 8, TILE_ROWS = 6, TILE_VECTORS = 2;
constexpr int PATCH_ROWS = 5, PATCH_VECTORS = 2;
#elif defined(__ARM_NEON)
constexpr int LANES = 4, TILE_ROWS = 4, TILE_VECTORS = 4;
constexpr int PATCH_ROWS = 5, PATCH_VECTORS = 4;
#else
constexpr int LANES = 4, TILE_ROWS = 4, TILE_VECTORS = 2;
constexpr int PATCH_ROWS = 5, PATCH_VECTORS = 2;
#endif
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "random words are halves of little-endian 64 bits");

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));
typedef uint64_t longs __attribute__((vector_size(4 * LANES)));

typedef double doubles __attribute__((vector_size(8 * LANES)));

// Numbers that a row of n takes: whole vectors.
constexpr int64_t padded(int64_t n) { return (n + LANES - 1) / LANES * LANES; }

// A vector wherever its numbers lie. It is numbers of their type, not bytes, that are written: what else an object
// holds may stay in registers.
template <class Vector>
struct __attribute__((packed)) Unaligned {
  Vector lanes;
};

template <class Vector = vec, class Number>
inline Vector load(const Number* p) {
  static_assert(std::is_same<Number, typename std::decay<decltype(Vector{}[0])>::type>::value);
  return reinterpret_cast<const Unaligned<Vector>*>(p)->lanes;
}

template <class Vector, class Number>
inline void store(Number* p, Vector v) {
  static_assert(std::is_same<Number, typename std::decay<decltype(v[0])>::type>::value);
  reinterpret_cast<Unaligned<Vector>*>(p)->lanes = v;
}

// A vector that several sums need, in a register: in small tiles GCC would read it from memory for each of them.
inline vec held(vec v) {
#if defined(__x86_64__)
  asm("" : "+v"(v));
#endif
  return v;
}

inline vec broadcast(float s) { return s - vec{}; }

inline ints lane_numbers() {
  ints n{};
  for (int i = 0; i < LANES; ++i) n[i] = i;
  return n;
}

// Lanes below n keep their value, the others are zero whatever they held.
inline vec first(int64_t n, vec v) { return lane_numbers() < int32_t(n < LANES ? n : LANES) ? v : vec{}; }

inline void store_first(int64_t n, float* p, vec v) {
  store(p, lane_numbers() < int32_t(n < LANES ? n : LANES) ? v : load(p));
}

// Shuffles of the lanes I, which are all of them.
template <int... I>
struct Lanes {
  // Of each four lanes: a0 + a1, a2 + a3, b0 + b1, b2 + b3.
  static vec pairs(vec a, vec b) {
    return __builtin_shufflevector(a, b, (I / 4 * 4 + I % 2 * 2 + (I & 2 ? LANES : 0))...) +
           __builtin_shufflevector(a, b, (I / 4 * 4 + I % 2 * 2 + 1 + (I & 2 ? LANES : 0))...);
  }
  // Two of the four squares of N lanes and rows change places: a transposition of squares.
  template <int N>
  static vec above(vec a, vec b) { return __builtin_shufflevector(a, b, ((I & N) ? LANES + I - N : I)...); }
  template <int N>
  static vec below(vec a, vec b) { return __builtin_shufflevector(a, b, ((I & N) ? LANES + I : I + N)...); }
  // Neighbours of so many lanes change places.
  template <int N>
  static vec exchanged(vec v) { return __builtin_shufflevector(v, v, (I ^ N)...); }
};
#if defined(__AVX512F__)
using All = Lanes<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15>;
#elif defined(__AVX2__)
using All = Lanes<0, 1, 2, 3, 4, 5, 6, 7>;
#else
using All = Lanes<0, 1, 2, 3>;
#endif

// Rows become columns: squares of N rows and lanes do within those of twice as many.
template <int N = LANES / 2>
inline void transpose(vec (&rows)[LANES]) {
#pragma GCC unroll 16
  for (int i = 0; i < LANES; ++i) {
    if (i & N) continue;
    const vec a = rows[i], b = rows[i + N];
    rows[i] = All::above<N>(a, b);
    rows[i + N] = All::below<N>(a, b);
  }
  if constexpr (N > 1) transpose<N / 2>(rows);
}

// Of vectors whose lane i has a part of the sum of row i % N: all of it, in every lane.
template <int N>
inline vec gathered(vec v) {
  if constexpr (N >= LANES)
    return v;
  else
    return gathered<2 * N>(v + All::exchanged<N>(v));
}

// Lanes that are STRIDE apart added up: those of a in the first of the two, those of b in the second.
template <int STRIDE>
inline vec folded(vec a, vec b) {
  return All::above<STRIDE>(a, b) + All::below<STRIDE>(a, b);
}

// Of vectors that have four rows' parts of sums in each four lanes, N of them: those of rows 4 i to 4 i + 3 added up in
// the i-th four lanes of every 4 N.
template <int N>
inline vec across(const vec (&fours)[N]) {
  if constexpr (N == 1) {
    return fours[0];
  } else {
    vec half[N / 2];
#pragma GCC unroll 2
    for (int i = 0; i < N / 2; ++i) half[i] = folded<2 * N>(fours[i], fours[i + N / 2]);
    return across(half);
  }
}

// Lane i of the result is the sum of the lanes of rows[i % N]; N a power of two, up to LANES. Fours of lanes first:
// what stays within them is fastest.
template <int N>
inline vec sums(const vec (&rows)[N]) {
  static_assert(N <= LANES);
  if constexpr (N == 1) {
    return gathered<1>(rows[0]);
  } else if constexpr (N == 2) {
    return gathered<2>(folded<1>(rows[0], rows[1]));
  } else {
    vec fours[N / 4];
#pragma GCC unroll 4
    for (int i = 0; i < N / 4; ++i)
      fours[i] = All::pairs(All::pairs(rows[4 * i], rows[4 * i + 1]), All::pairs(rows[4 * i + 2], rows[4 * i + 3]));
    return gathered<N>(across(fours));
  }
}

inline float total(vec v) {
  vec rows[1] = {v};
  return sums(rows)[0];
}

inline doubles exact(vec v) { return __builtin_convertvector(v, doubles); }

inline double total(doubles v) {
  double sum = 0;
  for (int lane = 0; lane < LANES; ++lane) sum += v[lane];
  return sum;
}

inline vec square_root(vec v) {
  float lanes[LANES];
  store(lanes, v);
  for (float& lane : lanes) lane = __builtin_sqrtf(lane);
  return load(lanes);
}

// Puts the lanes of v that are not zero, NaN among them, side by side, and those of w beside them; returns how many
// they are. Writes whole vectors.
inline int64_t squeeze(vec v, ints w, float* values, int32_t* others) {
#if defined(__AVX512F__)
  const __mmask16 kept = _mm512_cmp_ps_mask((__m512)v, _mm512_setzero_ps(), _CMP_NEQ_UQ);
  store(values, (vec)_mm512_maskz_compress_ps(kept, (__m512)v));
  store(others, (ints)_mm512_maskz_compress_epi32(kept, (__m512i)w));
  return __builtin_popcount(kept);
#else
  int64_t count = 0;
  for (int i = 0; i < LANES; ++i) {
    values[count] = v[i];
    others[count] = w[i];
    count += v[i] != 0;
  }
  return count;
#endif
}

// e^x within two units in the last place; zero below e^-87, infinity above e^88, NaN of NaN.
// x = n ln 2 + r with a whole n, so e^x = 2^n e^r, and |r| < 0.35 suits Taylor's series.
inline vec exponential(vec x) {
  const vec lowest = broadcast(-87), highest = broadcast(88);
  vec inside = x < lowest ? lowest : x > highest ? highest : x;
  const float shift = 12582912;  // 1.5 * 2^23: adding it rounds to whole numbers
  vec shifted = inside * 1.44269504f + shift;
  vec n = shifted - shift;
  vec r = inside - n * 0.693359375f + n * 2.12194440e-4f;
  vec series = broadcast(1.0f / 5040);
  for (float factorial : {720.0f, 120.0f, 24.0f, 6.0f, 2.0f, 1.0f, 1.0f}) series = series * r + 1 / factorial;
  ints power = ((ints)shifted - 0x4B400000 + 127) << 23;  // the bits of 2^n
  vec y = series * (vec)power;
  return x < lowest ? vec{} : x > highest ? broadcast(__builtin_inff()) : y;
}
