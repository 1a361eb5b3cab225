// What the loops ask of the compiler: one copy per instruction set, and inlining.
#pragma once

#include <cstdint>  // a header of the C library defines __GLIBC__; without one, the test below fails in silence

// One binary serves all x86-64 machines: each loop over whole rows is compiled once per instruction set, and the
// dynamic linker chooses among the copies. That takes GCC's multiversioning and glibc's indirect functions; elsewhere
// there is one copy.
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 11
#define NEUROSQL_EACH_ISA __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define NEUROSQL_EACH_ISA
#endif

#if defined(__GNUC__)
#define NEUROSQL_INLINE inline __attribute__((always_inline))
#else
#define NEUROSQL_INLINE inline
#endif
