package scala.collection;

/** An iterator as Scala's, which is none of Java's. */
public interface Iterator {
    boolean hasNext();

    Object next();
}
