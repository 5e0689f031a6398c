package scala.collection;

/** What Scala's collections have in common. */
public interface IterableOnce {
    Iterator iterator();
}
