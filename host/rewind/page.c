/*
 * Puts a page back by storing only the cache lines that differ from the copy.
 *
 * A request changes some three of the 64 lines of a page that it writes to. Copying all of them makes 4 KB of modified
 * lines, which push what the next request needs out of the caches; comparing reads as much, and leaves the lines that
 * are right as they are. By 512-bit or 256-bit instructions this is also faster in itself. With x86-64's 128-bit ones
 * it is not: there the page is copied whole. aarch64's were measured nowhere.
 *
 * Runs during the rollback: no libc function is called. The functions are the compiler's to turn into instructions,
 * never into a call of memcpy() or memcmp().
 */
#include "internal.h"

#define LINE 64

#ifdef __x86_64__
#include <immintrin.h>

/* Four lines at a time: most of them are as they were, and a branch for each costs more than a comparison. */
__attribute__((target("avx512f"))) static bool restore_512(uint8_t *to, const uint8_t *from)
{
	bool differs = false;
	for (size_t i = 0; i < PAGE_SIZE; i += 4L * LINE) {
		__m512i was[4], other[4];
#pragma GCC unroll 4
		for (size_t j = 0; j < 4; j++) {
			was[j] = _mm512_loadu_si512(from + i + j * LINE);
			other[j] = _mm512_xor_si512(_mm512_loadu_si512(to + i + j * LINE), was[j]);
		}
		__m512i any = _mm512_or_si512(_mm512_or_si512(other[0], other[1]), _mm512_or_si512(other[2], other[3]));
		if (_mm512_test_epi64_mask(any, any) == 0) {
			continue;
		}
		differs = true;
#pragma GCC unroll 4
		for (size_t j = 0; j < 4; j++) {
			if (_mm512_test_epi64_mask(other[j], other[j]) != 0) {
				_mm512_storeu_si512(to + i + j * LINE, was[j]);
			}
		}
	}
	return differs;
}

__attribute__((target("avx2"))) static bool restore_256(uint8_t *to, const uint8_t *from)
{
	bool differs = false;
	for (size_t i = 0; i < PAGE_SIZE; i += LINE) {
		__m256i *low = (__m256i *)(void *)(to + i), *high = low + 1;
		const __m256i *from_low = (const __m256i *)(const void *)(from + i);
		__m256i was_low = _mm256_loadu_si256(from_low), was_high = _mm256_loadu_si256(from_low + 1);
		__m256i other = _mm256_or_si256(_mm256_xor_si256(_mm256_loadu_si256(low), was_low),
		                                _mm256_xor_si256(_mm256_loadu_si256(high), was_high));
		if (!_mm256_testz_si256(other, other)) {
			_mm256_storeu_si256(low, was_low);
			_mm256_storeu_si256(high, was_high);
			differs = true;
		}
	}
	return differs;
}

static bool restore_whole(uint8_t *to, const uint8_t *from)
{
	bool differs = __builtin_memcmp(to, from, PAGE_SIZE) != 0;
	size_t words = PAGE_SIZE / sizeof(uint64_t);
	__asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(words) : : "memory");
	return differs;
}

page_restore *page_restore_fastest(void)
{
	__builtin_cpu_init();
	return __builtin_cpu_supports("avx512f") ? restore_512
	       : __builtin_cpu_supports("avx2")  ? restore_256
	                                         : restore_whole;
}
#else
#include <arm_neon.h>

static bool restore_128(uint8_t *to, const uint8_t *from)
{
	bool differs = false;
	for (size_t i = 0; i < PAGE_SIZE; i += LINE) {
		uint8x16x4_t was = vld1q_u8_x4(from + i), is = vld1q_u8_x4(to + i);
		uint8x16_t other = vorrq_u8(vorrq_u8(veorq_u8(was.val[0], is.val[0]), veorq_u8(was.val[1], is.val[1])),
		                            vorrq_u8(veorq_u8(was.val[2], is.val[2]), veorq_u8(was.val[3], is.val[3])));
		if (vmaxvq_u8(other) != 0) {
			vst1q_u8_x4(to + i, was);
			differs = true;
		}
	}
	return differs;
}

page_restore *page_restore_fastest(void)
{
	return restore_128;
}
#endif
