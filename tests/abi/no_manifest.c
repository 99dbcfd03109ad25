/* A shared object that is no plugin. */
int fsdp2_test_nothing(void);
int fsdp2_test_nothing(void) {
  return 0;
}
