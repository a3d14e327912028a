// Numbers so close to zero that the processor computes with them a hundred times slower.
#pragma once
#include <cstdint>

#if defined(__SSE__)
#include <immintrin.h>
#endif

// While it lives, they count as zero in the calling thread. Afterwards the thread has its mode back.
class DenormalsAreZero {
 public:
#if defined(__SSE__)
  DenormalsAreZero() : before(_mm_getcsr()) { _mm_setcsr(before | RESULTS | OPERANDS); }
  ~DenormalsAreZero() { _mm_setcsr(before); }

 private:
  static constexpr unsigned RESULTS = 1 << 15, OPERANDS = 1 << 6;
  const unsigned before;
#elif defined(__aarch64__)
  DenormalsAreZero() {
    asm volatile("mrs %0, fpcr" : "=r"(before));
    asm volatile("msr fpcr, %0" : : "r"(before | FLUSH));
  }
  ~DenormalsAreZero() { asm volatile("msr fpcr, %0" : : "r"(before)); }

 private:
  static constexpr uint64_t FLUSH = 1 << 24;
  uint64_t before;
#else
  DenormalsAreZero() {}
  ~DenormalsAreZero() {}
#endif
};
