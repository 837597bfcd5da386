/*
 * An extension for the tests, under a name that they choose (-DNAME=...). With
 * -DTHREAD_AT=startup or request it starts a thread when PHP starts or when a
 * request (the boot, in worker mode) begins, and never ends it.
 *
 * alive(): whether that thread runs in this process. probe_resource() and the
 * class ProbePages stand for what holds back what it is told to write.
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

static int pages;
static zend_object_handlers handlers;

static void free_pages(zend_object *object) { zend_object_std_dtor(object); }

static zend_object *make_pages(zend_class_entry *of) {
  zend_object *object = zend_objects_new(of);
  object_properties_init(object, of);
  object->handlers = &handlers;
  return object;
}

static void close_pages(zend_resource *resource) { free(resource->ptr); }

static PHP_MINIT_FUNCTION(probe) {
  zend_class_entry class;
  INIT_CLASS_ENTRY(class, "ProbePages", NULL);
  zend_register_internal_class(&class)->create_object = make_pages;
  memcpy(&handlers, zend_get_std_object_handlers(), sizeof handlers);
  handlers.free_obj = free_pages;
  pages = zend_register_list_destructors_ex(close_pages, NULL, "probe pages",
                                            module_number);
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

static PHP_FUNCTION(probe_resource) {
  RETURN_RES(zend_register_resource(malloc(1), pages));
}

static const zend_function_entry functions[] = {PHP_FE(
    alive, alive_arguments) PHP_FE(probe_resource, alive_arguments) PHP_FE_END};

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
