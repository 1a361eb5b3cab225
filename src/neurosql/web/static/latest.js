/**
 * Ask for what is under the pointer, one question at a time: while an answer is under way, only the last question is
 * kept. Answers thus never queue up, and each is shown as soon as it is there.
 */
export class Latest {
  /** `ask(question)` returns a promise, `show(answer, question, milliseconds)` is called with it. */
  constructor(ask, show, fail = () => {}) {
    [this.ask, this.show, this.fail] = [ask, show, fail];
    this.busy = false;
    this.next = null;
  }

  want(question) {
    this.next = { question, since: performance.now() };
    if (!this.busy) this.go();
  }

  async go() {
    this.busy = true;
    while (this.next) {
      const { question, since } = this.next;
      this.next = null;
      try {
        const answer = await this.ask(question);
        this.show(answer, question, performance.now() - since);
      } catch (error) {
        this.fail(error);
      }
    }
    this.busy = false;
  }
}
