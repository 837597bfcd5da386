/*
 * An extension for the tests, under a name that they choose (-DNAME=...). With
 * -DTHREAD_AT=startup or request it starts a thread when PHP starts or when a
 * request (the boot, in worker mode) begins, and never ends it.
 *
 * alive(): whether that thread runs in this process.
 */
#include <php.h>
#include <pthread.h>
#include <time.h>

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
enum { never, startup, request };
#ifndef THREAD_AT
#define THREAD_AT never
#endif

static volatile unsigned long turns;

static void *work(void *unused) {
  for (;;) {
    turns++;
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  return unused;
}

static void start(void) {
  static pid_t owner;
  pthread_t thread;
  if (owner != getpid()) {
    owner = getpid();
    pthread_create(&thread, NULL, work, NULL);
  }
}

static PHP_MINIT_FUNCTION(probe) {
  if (THREAD_AT == startup) {
    start();
  }
  return SUCCESS;
}

static PHP_RINIT_FUNCTION(probe) {
  if (THREAD_AT == request) {
    start();
  }
  return SUCCESS;
}

ZEND_BEGIN_ARG_INFO_EX(alive_arguments, 0, 0, 0)
ZEND_END_ARG_INFO()

static PHP_FUNCTION(alive) {
  unsigned long before = turns;
  nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  RETURN_BOOL(turns != before);
}

static const zend_function_entry functions[] = {PHP_FE(alive, alive_arguments)
                                                    PHP_FE_END};

static zend_module_entry probe_module_entry = {STANDARD_MODULE_HEADER,
                                               TEXT(NAME),
                                               functions,
                                               PHP_MINIT(probe),
                                               NULL,
                                               PHP_RINIT(probe),
                                               NULL,
                                               NULL,
                                               "1",
                                               STANDARD_MODULE_PROPERTIES};
ZEND_GET_MODULE(probe)
